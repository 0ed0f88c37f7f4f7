// Package operators serves the HTTP pages of a node: its health, its metrics and its state.
//
//	                  healthz address          metrics address     metrics only
//	                  load balancers,          Prometheus, people  Prometheus
//	                  supervisors                                  elsewhere
//	/livez            yes                      yes        the program makes progress
//	/healthz          yes                      yes        it makes progress, and is not being stopped
//	/readyz           yes                      yes        it is healthy, and serves what its sources hold
//	/                                          yes        the status page (package statuspage)
//	/metrics                                   yes                 yes
//	/configz                                   yes        settings, ports, sources, as JSON
//	/version                                   yes
//	/debug/pprof/                              with -profiling
//
// The healthz address may be reachable by strangers, so its answers are short and contain no names. The metrics address shows
// everything, and by default only this machine can reach it. If both are the same address, one server answers all pages there. The
// metrics-only address, by default off, lets Prometheus on another machine scrape a node whose page it cannot open.
//
// Connections, expensive requests at one time, and the time and bytes of each request are bounded. When all connections are taken, a
// new one replaces the one that has waited longest for its client. So idle clients, however many, do not block a health check.
package operators
