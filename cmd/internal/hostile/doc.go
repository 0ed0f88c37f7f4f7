// Package hostile treats kube-proxy as badly as strangers and bad records can, and holds it to the bounds that
// docs/security.md states. It is nothing but tests: `make hostile` runs them in full and prints a table, a plain
// `go test` runs a short form of each.
//
// Every run has a network namespace of its own, so nothing outside is touched, and in it a real etcd, the real
// program, endpoints, and a bystander: another service whose clients make round trips all the while. In full,
// the same load is aimed in turn at the proxy and at a sink, a plain process that swallows it and has room for as many
// connections. What the load does to the machine it does in both cases; what it does to the proxy shows in the
// bystander's p99 and in the memory of the process. What operators ask meanwhile is the same in both.
//
// Each load is aimed at each of the two five times, by turns: the median of the five ratios of p99 may be 2 at most. A p99
// is that of all round trips from the first of the load until all of it has been there: 1,000 a second, so between
// 4,000 and 10,000. The load has to come to the proxy nearly as fast as to the sink, else it would be another one.
//
// An attack aims at one fault: at the log, at a search for an endpoint, at a resolver, at records. Beside it the bystander also
// connects anew, and probes have to be answered. It is aimed three times at each of the two, and the longest turn
// of a loop is judged as well. Where records are the attack, the same records are written elsewhere in etcd for the
// comparison. A p99 of less than a millisecond passes, whatever its ratio: there the kernel's scheduler decides.
//
// Columns of the table: what the proxy refused or ended, by reason, as /metrics has it; the anonymous memory of
// the process (RssAnon) before, at its highest and some seconds after, with the bound; the bystander's p99
// beside the proxy and beside the sink, medians, the median of their ratios and all five; and how long the load took to come
// to each. The slow readers' sink is the endpoint that they would read from.
//
// Other work on the machine adds to both p99s, so the ratio then says too little, and spreads. Judge on a machine that has nothing else to do.
//
//	make hostile                      all of it
//	make hostile ARGS=-run=Records    some
//	make hostile ARGS='-args -h'      this, and the flags
package hostile
