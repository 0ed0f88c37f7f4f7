// Package operators answers those who run a node, over HTTP: is it well, what does it count, what does it
// do.
//
//	                  healthz address          metrics address
//	                  load balancers,          Prometheus, people
//	                  supervisors
//	/livez            yes                      yes        its work is getting done
//	/healthz          yes                      yes        so it is, and it is not being stopped
//	/readyz           yes                      yes        so it is, and it serves what etcd holds
//	/metrics                                   yes
//	/configz                                   yes        settings, ports, source, as JSON
//	/version                                   yes
//	/debug/pprof/                              if wanted
//
// The healthz address is meant to be seen by strangers, and so its answers are short and name nobody. The
// metrics address tells all, and by default only this machine hears it. If the two are the same, one
// server answers everything there.
//
// What a stranger can make of it is bounded: connections, requests that take work, the time and the bytes
// of each request. When all connections are taken, the one that has been waiting longest for its client
// makes room. So idle clients, however many, keep nobody from asking how the node is.
package operators
