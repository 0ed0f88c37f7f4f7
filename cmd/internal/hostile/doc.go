// Package hostile attacks kube-proxy with hostile clients and bad records, and checks the bounds that docs/security.md states. It
// contains only tests: `make hostile` runs them in full and prints a table, and a plain `go test` runs a short form of each.
//
// Every run has a network namespace of its own, so nothing outside is affected. In it run a real etcd, the real program, endpoints, and
// a bystander: another service whose clients make round trips all the time. In full, the same load goes in turn to the proxy and to a
// sink, a plain process that accepts all of it. The machine suffers alike in both cases. What the load does to the proxy shows in the
// bystander's p99 and in the memory of the process. Requests for the operators' pages are the same in both.
//
// Each load goes to each of the two five times, by turns: the median of the five ratios of p99 may be 2 at most. A p99 covers all round
// trips from the start of the load until all of it has arrived: 1,000 a second, so between 4,000 and 10,000. The load must reach the
// proxy nearly as fast as the sink; otherwise it would be another load.
//
// An attack aims at one weakness: the log, the search for an endpoint, a resolver, records. During it the bystander also makes new
// connections, and health checks must be answered. It goes to each of the two three times, and the longest turn of a loop is judged as
// well. It may take 20 ms, or as long as the yardstick if that is more: threads beside the attack, as many as there are loops, that each work for 5 ms ten times a second. On few
// processors dozens of threads wait for one, and what they cost a loop is not its doing. On a starved machine the yardstick hides a turn that is as
// long. Where records are the attack, the same records are written elsewhere in etcd for the comparison. A p99 of less than a millisecond
// passes, whatever its ratio: there the kernel's scheduler decides.
//
// Six attacks are judged beside an innocent load of the same size, which also goes to the proxy: uploads of the same bytes that an endpoint
// reads and that end by FIN; as many records, of as many ports and bytes, that can be used or ask for nothing (headless services); names
// that are answered. Such a load costs work in any proxy, and on few processors the bystander waits for that work; the sink does none of
// it, so the ratio to the sink tells of the machine. The ratio to the innocent load tells what the attack adds; where the
// attack also delays its writer, it is multiplied by that. The table has both. Bounds of memory and of turns hold in innocent rounds, too.
//
// A bound of p99, of turns or of throughput that is exceeded is measured again, in a new process: it counts as exceeded if two of three runs show it. What
// the proxy does to itself, it does each time. Bounds of memory, refusals, probes, and the time until a change is in force count at once.
//
// Columns of the table: what the proxy refused or ended, by reason, from /metrics; the anonymous memory of the process (RssAnon) before,
// at its highest and some seconds after, with the bound; the bystander's p99 beside the attack and beside what it is judged by, and beside
// the sink (medians, the median of their ratios, and all five); the time in which each load arrived. The slow readers' sink is the endpoint that they would read from.
//
// Other work on the machine adds to both p99s, so the ratios spread and show less. Run it on a machine that has nothing else to do.
//
//	make hostile                      all of it
//	make hostile ARGS=-run=Records    some
//	make hostile ARGS=-engine=epoll   with another engine
//	make hostile ARGS='-args -h'      this, and the flags
package hostile
