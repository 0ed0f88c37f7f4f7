// Package check reports what a proxy would do with the records of a registry, without running one.
//
//	etcd, or a directory ──▶ Registry ──▶ Examine ──▶ Report ──▶ a table, or JSON
//	                         keys and     each record,          WriteText
//	                         values       then all together     WriteJSON
//
// [Examine] gives each record a verdict by the rules of the proxy itself. Package registry decodes the records and orders claims on
// one port. Package proxy knows which endpoints are its own listeners. A problem between records is reported at the record that has
// to change: a taken port at the service that would wait, a loop at the endpoints that lead back.
//
// # Errors and warnings
//
// An error is what the proxy refuses: an unusable key or value, a port that a service does not get, an endpoint that is not dialled.
// A warning is what the proxy does although it was probably not meant: endpoints without a service, a service without endpoints, a
// record that another one hides. A registry without errors is served as written. [Report.Failed] depends on errors, and on warnings too if it is strict.
//
// # Limits
//
// The package judges the newest value of each key, as a proxy that starts now would. A running proxy may still serve the last good
// version of a record, and leaves a port with its present owner. The package looks up no host names; it knows only localhost. The
// machine on which it runs says which addresses are the node's own.
package check
