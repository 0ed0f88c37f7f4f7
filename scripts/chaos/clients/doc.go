// Package clients is the load of a chaos run, and the check of each answer.
//
// A few services exist throughout the run. Their endpoints change all the time, and at least one of them always works. So no client of
// theirs may ever fail, whatever happens to etcd. [Clients] connect over TCP and send datagrams. Each [Backend] answers with its own
// address. [Records] decides whether the service had this endpoint at the time.
package clients
