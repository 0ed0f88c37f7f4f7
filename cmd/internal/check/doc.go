// Package check tells what a proxy would make of the records of a registry, without running one.
//
//	etcd, or a directory ──▶ Registry ──▶ Examine ──▶ Report ──▶ a table, or JSON
//	                         keys and     each record,          WriteText
//	                         values       then the whole        WriteJSON
//
// [Examine] gives each record a verdict. It judges by the rules that the proxy itself lives by:
// package registry decodes the records and says which of two services comes first, package proxy
// which endpoints are its own listeners. What only shows in the whole is written down at the record
// that somebody would have to change: a port that is taken at the service that has to wait, a loop
// at the endpoints that lead back.
//
// # Errors and warnings
//
// An error is something that the proxy refuses: a key or a value that it cannot use, a port that it
// does not give to a service, an endpoint that it does not dial. A warning is what it does as it is
// written, and what was hardly meant: endpoints of no service, a service without endpoints, a record
// that another one hides. So a registry without errors is served as it says, and [Report.Failed]
// tells of errors only.
//
// # What it cannot see
//
// It judges the newest value of each key, as a proxy that starts now would. A proxy that has been
// running may still serve the last good version of a record, and who has a port keeps it until then.
// It looks up no host names: of the names of endpoints it knows localhost only. Which addresses are
// this machine's is asked of this machine.
package check
