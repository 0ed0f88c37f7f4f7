// Package metrics gives Prometheus the numbers of a node.
//
//	read at each scrape:            sources, Broadcaster, Proxier, balancer ──▶ Collect ──┐
//	recorded when it happens:       Ended, the stopwatch around the handlers ─────────────┴──▶ /metrics
//
// Nothing is counted twice. A scrape copies the counters that the other packages keep, so metrics cost traffic nothing. Only durations
// are recorded one by one, in histograms without a label for the service.
//
// What is served bounds the number of series. A series lives as long as its service, from when the service has its port, and a
// counter that is zero is left out. Endpoints
// have series only with -metrics_endpoints.
//
// A metric that later kube-proxies have too has their name. All names begin with kubeproxy_, except those of the process and of the Go
// runtime.
package metrics
