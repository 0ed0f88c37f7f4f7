//go:build linux

package fleet

import (
	"flag"
	"fmt"
	"slices"
	"strconv"
	"time"

	"kubeproxy/scripts/internal/measure"
)

const about = `
Measures what many nodes and one etcd cost each other. Nodes are kube-proxies, each with an address of its own, or
just what they follow etcd with (sources), which to etcd is the same. Steps:
  herd    all start at the same moment, until the last one serves
  idle    nothing happens
  change  the endpoints of a service are replaced, until the last one serves the new ones
  outage  etcd is killed, and started again; a change is made as soon as it takes one, until the last one serves it
  resync  everything is read again, about every -period, and nothing has changed
  frozen  all are stopped (SIGSTOP) for -freeze while services change, and go on; takes 150 s for each round
Each node listens on all of the ports: with the defaults that is 50,000 sockets. It needs a descriptor limit of
as many as there are services and some (ulimit -n), 100 MB of memory for each node, and no privileges.
`

// All but the last are done unless others are asked for.
var stepNames = []string{"herd", "idle", "change", "outage", "resync", "frozen"}

// The ways to etcd.
const (
	direct    = "direct"
	grpcProxy = "grpc-proxy"
	apiServer = "api-server"
)

// options is the command line.
type options struct {
	measure.Options
	nodes, services, endpoints int
	sources                    []int
	steps, ways                []string
	changes                    int
	idle, period               time.Duration
	outages                    []time.Duration
	nice                       int
	freezes                    time.Duration
	rate                       int
	where                      string // these go
}

// Ports of the services begin here, and end below those that the kernel gives to outgoing connections.
const (
	firstPort   = 10000
	maxServices = 20000
)

// flagSet gives the flags that fill in o.
func flagSet(o *options) *flag.FlagSet {
	f := o.FlagSet("fleet", about, 3, 30*time.Minute)
	f.Lookup("rounds").Usage = "how often all start, and how often etcd is killed, `N`"
	o.sources, o.steps, o.ways = []int{10, 100}, stepNames[:5], []string{direct, grpcProxy}
	o.outages = []time.Duration{0, 5 * time.Second}
	f.IntVar(&o.nodes, "nodes", 50, "kube-proxies, `N`; 0 for none")
	measure.List(f, "sources", &o.sources, "fleets of sources to measure after them, `N,...` (default 10,100); none for none. They share one process and the\n"+
		"machine: a thousand of them want fewer services (-nodes=0 -sources=1000 -services=100)", func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err == nil && n < 1 {
			err = fmt.Errorf("%d is not positive", n)
		}
		return n, err
	})
	f.IntVar(&o.services, "services", 1000, "`N` services that all of them offer, from port 10000 on")
	f.IntVar(&o.endpoints, "endpoints", 10, "`N` of each service")
	measure.List(f, "steps", &o.steps, "what to do, `STEP,...` (default: all but frozen)", measure.OneOf(stepNames...))
	measure.List(f, "via", &o.ways, "the way to etcd, `WAY,...`: direct; grpc-proxy, of nodes; api-server, of sources: an API server with a watch cache\n"+
		"(default: direct,grpc-proxy). The outages are left out behind the grpc-proxy, which hides them; with an API server\n"+
		"they are its own", measure.OneOf(direct, grpcProxy, apiServer))
	f.IntVar(&o.changes, "changes", 50, "how many `changes` are made, one after the other")
	f.DurationVar(&o.idle, "idle", 10*time.Second, "for how long nothing happens, a `duration`")
	f.DurationVar(&o.period, "period", 10*time.Second, "-config_sync_period in the step resync, a `duration`; in the others it is an hour")
	measure.List(f, "outages", &o.outages, "how long etcd is away, `DURATION,...` (default 0s,5s)", time.ParseDuration)
	f.IntVar(&o.nice, "nice", 0, "the fleet's niceness, `N`: with 19, etcd and the puts have the processors first, as in life, where those of the nodes are others")
	f.DurationVar(&o.freezes, "freeze", time.Minute, "for how long all are stopped in the step frozen, a `duration`")
	f.IntVar(&o.rate, "rate", 1000, "`N` puts a second in the step frozen")
	f.StringVar(&o.where, "puts", below, "`WHERE` these puts go while all are stopped: below the registry's prefix, where they change services, or outside")
	return f
}

func parseOptions(args []string) (options, error) {
	var o options
	if err := measure.Parse(flagSet(&o), args); err != nil {
		return o, err
	}
	switch {
	case o.nodes < 0 || o.nodes > maxNodes:
		return o, measure.Usage("-nodes=%d is not between 0 and %d", o.nodes, maxNodes)
	case o.nodes > 0 && !slices.ContainsFunc(o.ways, func(way string) bool { return way != apiServer }):
		return o, measure.Usage("-via=%s is a way of sources alone: give -nodes=0", apiServer)
	case len(o.sources) > 0 && !slices.ContainsFunc(o.ways, func(way string) bool { return way != grpcProxy }):
		return o, measure.Usage("-via=%s is a way of nodes alone: give -sources=none", grpcProxy)
	case o.services < 1 || o.services > maxServices:
		return o, measure.Usage("-services=%d is not between 1 and %d", o.services, maxServices)
	case o.endpoints < 1 || o.Rounds < 1 || o.changes < 1 || o.idle <= 0 || o.period <= 0:
		return o, measure.Usage("-endpoints, -rounds, -changes, -idle and -period have to be positive")
	case o.nice < 0 || o.nice > 19:
		return o, measure.Usage("-nice=%d is not between 0 and 19", o.nice)
	case o.freezes <= 0 || o.rate < 1:
		return o, measure.Usage("-freeze and -rate have to be positive")
	case o.where != below && o.where != outside:
		return o, measure.Usage("-puts=%s is neither %s nor %s", o.where, below, outside)
	}
	return o, nil
}
