// Package proxynode is the proxy under test of a chaos run, as a process of its own: it can be paused, and built with a deliberate defect.
//
//	etcd ─▶ source ─▶ tee ─▶ Mux ─▶ Broadcaster ─▶ Proxier, recorder ─▶ sockets
//	                   └──────────── reports ──────────────────┘
//
// Its packages are wired as kube-proxy's are. Between source and Mux, a tee reports each Update. Behind the Proxier, a second handler
// records what the Proxier received. [Run] is the process, and [Start] starts it. Queries arrive on its standard input, and reports leave
// on its standard output, both in gob. Its log goes to standard error.
package proxynode
