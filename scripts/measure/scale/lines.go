//go:build linux

package scale

import (
	"slices"

	"kubeproxy/scripts/internal/measure"
)

// lines are those of the table.
var lines = []measure.Metric{
	measure.Column("endpointsnet", "a change of endpoints: CPU us", 1e6),
	measure.Column("endpoints", "  with the connection that sees it: CPU us", 1e6),
	measure.Column("bare", "  a bare watcher of the same, which does nothing: CPU us", 1e6),
	measure.Column("reading", "  who only reads as many bytes from a socket: CPU us", 1e6),
	measure.Column("naive", "  who rebuilds everything instead: CPU us", 1e6),
	measure.Column("behind50", "  put to served, after a bare watcher, idle: p50 ms", 1e3),
	measure.Column("behind99", "  p99 ms", 1e3),
	measure.Column("saturated50", "  the same beside saturating traffic: p50 ms", 1e3),
	measure.Column("saturated99", "  p99 ms", 1e3),
	measure.Column("traffic", "  round trips/s of that traffic", 1),
	measure.Column("portsnet", "a change of a port: CPU us", 1e6),
	measure.Column("ports", "  with the connection that sees it: CPU us", 1e6),
	measure.Column("portsbehind50", "  put to open, after a bare watcher: p50 ms", 1e3),
	measure.Column("portsbehind99", "  p99 ms", 1e3),
	measure.Column("resync", "a resync that finds nothing: CPU ms", 1e3),
	measure.Column("resident", "  VmRSS while one follows the other: MB", 1e-6),
	measure.Column("list", "etcd answers a bare client that lists everything: ms", 1e3),
	measure.Column("start", "from exec to all listening: ms", 1e3),
	measure.Column("startover", "  more than that answer: ms", 1e3),
	measure.Column("residentatstart", "VmRSS, started: MB", 1e-6),
	measure.Column("anonymousatstart", "  RssAnon: MB", 1e-6),
	measure.Column("residentatend", "VmRSS, after all changes: MB", 1e-6),
	measure.Column("anonymousatend", "  RssAnon: MB", 1e-6),
	measure.Column("goroutines", "goroutines", 1),
	measure.Column("descriptors", "descriptors", 1),
	measure.Column("churned", "churn: changes/s", 1),
	measure.Column("churncpu", "  CPU us of one", 1e6),
	measure.Column("failed", "  clients of untouched services that failed", 1),
	measure.Column("failedcalm", "  with the same puts where nobody watches", 1),
	measure.Column("trips99", "  their round trips: p99 ms", 1e3),
	measure.Column("trips99calm", "  with the same puts where nobody watches: p99 ms", 1e3),
	measure.Column("connects99", "  their connections: p99 ms", 1e3),
	measure.Column("connects99calm", "  with the same puts where nobody watches: p99 ms", 1e3),
	measure.Column("anonymousbeforechurn", "  RssAnon before: MB", 1e-6),
	measure.Column("anonymousinchurn", "  RssAnon at its end: MB", 1e-6),
	measure.Column("anonymousafterchurn", "  RssAnon half as long after it: MB", 1e-6),
}

// noteTimes notes the median and the 99th percentile of some times.
func noteTimes(note func(string, float64), key string, times []float64) {
	sorted := slices.Sorted(slices.Values(times))
	at := func(q float64) float64 { return sorted[int(q*float64(len(sorted)-1)+0.5)] }
	note(key+"50", at(0.50))
	note(key+"99", at(0.99))
}

// The sizes that are compared, and those whose changes have bars: of services as they are.
const few, many = "10", "10000"

// bars are what is promised, the churn at one of the sizes.
func bars(churned string) []measure.Bar {
	var all []measure.Bar
	const ofEndpoints, ofPort = "CPU of a change of endpoints", "CPU of a change of a port"
	for _, size := range []string{few, "1000", many} {
		all = append(all, measure.Bar{Of: size, Key: "endpointsnet", What: ofEndpoints + ": us", Bar: 100},
			measure.Bar{Of: size, Key: "portsnet", What: ofPort + ": us", Bar: 100})
	}
	return append(all,
		measure.Bar{Of: many, Key: "endpointsnet", What: ofEndpoints, To: few, Bar: 1.5},
		measure.Bar{Of: many, Key: "portsnet", What: ofPort, To: few, Bar: 1.5},
		measure.Bar{Of: many, Key: "behind99", What: "put to served, p99 after a bare watcher: ms", Bar: 5},
		measure.Bar{Of: many, Key: "portsbehind99", What: "put to open, p99 after a bare watcher: ms", Bar: 5},
		measure.Bar{Of: many, Key: "saturated99", What: "put to served beside saturating traffic, p99: ms", Bar: 5},
		measure.Bar{Of: many, Key: "resync", What: "CPU of an unchanged resync: ms", Bar: 60},
		measure.Bar{Of: many, Key: "startover", What: "exec to all listening, more than etcd's answer: ms", Bar: 1000},
		measure.Bar{Of: many, Key: "resident", What: "VmRSS while resync follows resync: MB", Bar: 80},
		measure.Bar{Of: many, Key: "residentatend", What: "VmRSS after all changes: MB", Bar: 80},
		measure.Bar{Of: churned, Key: "failed", What: "churn: clients of untouched services that failed, in the worst round", Worst: true},
		measure.Bar{Of: churned, Key: "trips99", What: "churn: p99 of round trips", ToKey: "trips99calm", Bar: 1.2},
		measure.Bar{Of: churned, Key: "connects99", What: "churn: p99 of connections", ToKey: "connects99calm", Bar: 1.2},
		measure.Bar{Of: churned, Key: "anonymousafterchurn", What: "churn: RssAnon afterwards", ToKey: "anonymousbeforechurn", Bar: 1.1})
}

// churned is the index of the size at which the churn is: 10,000 services, or the most that there are.
func churned(sizes []size) int {
	most := 0
	for i, s := range sizes {
		if s.services > sizes[most].services {
			most = i
		}
	}
	return most
}
