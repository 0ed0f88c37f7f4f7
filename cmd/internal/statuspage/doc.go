// Package statuspage shows people how a node is, in a browser: first what is wrong and what to do about it, then services,
// sources and limits, and why the last clients left.
//
//	/                      what is wrong; services, filtered and sorted, 100 on a page; sources; limits
//	/status/service?name=  one service: record, ports, endpoints, topology, the last five minutes
//	/status/endings        the last 200 endings
//	/status/changes        the last 1,000 changes
//	/status/events?of=     changes of one of these pages, as server-sent events
//
// The pages are complete without JavaScript. With it, a page replaces its parts by those that the server sends.
//
// What a page costs is bounded. All viewers share one snapshot of the node, which is taken on request, at most once a
// second, and never for more than two percent of the time. Rates and lines are made from snapshots, so while there is no viewer
// only refusals are sampled, once a minute: what clients felt five minutes ago is over. A snapshot reads counters, and copies of
// lists: no client waits for it.
//
// The pages change nothing. With Node.ActionPath, that of a service has a form for who has the token; it is answered elsewhere.
//
// Every text from outside is escaped by html/template, and the pages run no script but their own (Content-Security-Policy).
package statuspage
