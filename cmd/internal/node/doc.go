// Package node connects the packages of the program, for kube-proxy and for the playground. It is the place to begin reading.
//
//	sources ─Update─▶ Mux ─▶ store ─▶ Broadcaster ─Batch─┬▶ Proxier ─▶ balancer, engine ─▶ sockets
//	                                                     └▶ state file
//	operators' pages, metrics, connection log ◀── status of the sources, counters, endings of connections
//
// [Run] does all of it. It adds the Proxier to the Broadcaster before it starts a source, and returns when every goroutine has ended.
// ARCHITECTURE.md follows a change from left to right, and a connection through the engine.
package node
