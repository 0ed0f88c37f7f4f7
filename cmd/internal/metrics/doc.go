// Package metrics says in numbers what a node does, for Prometheus to read.
//
//	what is read when it is asked for:  source, broadcaster, proxier, balancer ──▶ Collect ──┐
//	what is noted when it happens:      Ended, the stopwatch around the handlers ────────────┴──▶ /metrics
//
// Nothing is counted twice: what the rooms count anyway is copied out when somebody asks, and costs
// traffic nothing. Only durations are noted one by one, in histograms that know no services.
//
// How much there is to read is bounded by what is served. A series lives as long as its service, and
// counters of what did not happen are left out. Endpoints have series only if they were asked for.
//
// Where the kube-proxies of later years have a metric for what is measured here, it has their name. All
// names begin with kubeproxy_, but for those of the process and of the Go runtime.
package metrics
