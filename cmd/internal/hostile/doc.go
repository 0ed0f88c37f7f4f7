// Package hostile treats kube-proxy as badly as strangers and bad records can, and holds it to the bounds that
// docs/security.md states. It is nothing but tests: `make hostile` runs them in full and prints a table, a plain
// `go test` runs a short form of each.
//
// Every run has a network namespace of its own, so nothing outside is touched, and in it a real etcd, the real
// program, endpoints, and a bystander: another service whose clients make round trips all the while. In full,
// the same load is aimed in turn at the proxy and at a sink, a plain process that swallows it. What the load
// does to the machine it does in both cases; what it does to the proxy shows in the bystander's p99 (at most
// twice that beside the sink) and in the memory of the process.
//
// Columns of the table: what the proxy refused or ended, by reason, as /metrics has it; the anonymous memory of
// the process (RssAnon) before, at its highest and some seconds after, with the bound; the bystander's p99
// beside the proxy and beside the sink, medians of the rounds, and the median of their ratios: from the
// first of the load until all of it stands. The slow readers' sink is the endpoint that they would read from.
package hostile
