//go:build linux

package patroni

import (
	"slices"
	"time"

	"kubeproxy/scripts/internal/measure"
)

const about = `
Measures what a client that commits all the time notices when the primary of a PostgreSQL cluster under Patroni changes: through kube-proxy, which
follows the leader's key or asks each member, through HAProxy, and without a proxy. Each sample is one change. It needs Debian's packages:
apt-get install -y --no-install-recommends patroni postgresql haproxy nftables. Without haproxy there is no comparison with it. It
runs as root, for each member has a network of its own.
`

// The events, and what they are.
const (
	switchover = "switchover"
	kill       = "kill"
	freeze     = "freeze"
	cut        = "cut"
	partition  = "partition"
	away       = "etcd-away"
)

var titles = map[string]string{
	switchover: "a switchover, as an operator asks for it",
	kill:       "the primary's PostgreSQL and Patroni are killed",
	freeze:     "the primary's Patroni is frozen, and its PostgreSQL goes on",
	cut:        "the primary's host is cut off from all",
	partition:  "the primary's host is cut off from etcd and from the other members, and its clients reach it",
	away:       "etcd is killed, and is back 20 s later; failsafe_mode has Patroni keep its primary",
}

// calm is how long the writer commits before a change, and after it.
const calm = 2 * time.Second

// A path is one way to the primary.
type path struct {
	name    string // for -paths
	subject measure.Subject
	port    uint16 // of proxyIP; 0: the writer looks for the primary itself
}

var (
	byMembers = path{"members", measure.Subject{Name: "members, wait: 5s", Ours: true}, 5005}
	byAsking  = path{"members-ask", measure.Subject{Name: "members, wait: 5s, unpromoted: ask", Ours: true}, 5008}
	libpq     = path{"libpq", measure.Subject{Name: "three hosts, as libpq tries them", Peer: true}, 0}
	byKey     = path{"key", measure.Subject{Name: "leader's key", Ours: true}, 5000}
	byKeyWait = path{"key-wait", measure.Subject{Name: "leader's key, wait: 5s", Ours: true}, 5001}
	byChecks  = path{"checks", measure.Subject{Name: "checks each 500 ms", Ours: true}, 5002}
	haproxy   = path{"haproxy", measure.Subject{Name: "haproxy, as Patroni documents it", Peer: true}, 5003}
	fast      = path{"haproxy-fast", measure.Subject{Name: "haproxy, checks each 500 ms", Peer: true}, 5004}
)

var (
	writerPaths = []path{byMembers, byAsking, byKey, byKeyWait, byChecks, libpq, haproxy, fast}
	readerPaths = []path{byReplicas, haReplicas}
)

type options struct {
	measure.Options
	ttl, loopWait int
	events, paths []string
}

func parseOptions(args []string) (options, error) {
	o := options{events: []string{switchover}}
	f := o.FlagSet("patroni", about, 5, 60*time.Minute)
	f.IntVar(&o.ttl, "ttl", 5, "`seconds` after which the key of a leader ends that does not renew it")
	f.IntVar(&o.loopWait, "loop_wait", 1, "`seconds` between two looks of Patroni")
	measure.List(f, "events", &o.events, "`EVENTS`: switchover, kill, freeze, cut, partition, etcd-away; of a replica: replica-frozen, replica-behind", measure.OneOf(switchover, kill, freeze, cut, partition, away, frozen, behind))
	for _, p := range slices.Concat(writerPaths, readerPaths) {
		o.paths = append(o.paths, p.name)
	}
	measure.List(f, "paths", &o.paths, "`PATHS` to the primary or, for the events of a replica, to replicas", measure.OneOf(slices.Clone(o.paths)...))
	if err := measure.Parse(f, args); err != nil {
		return o, err
	}
	if o.Rounds < 1 || o.ttl < 3*o.loopWait || o.loopWait < 1 || len(o.events) == 0 {
		return o, measure.Usage("-rounds and -loop_wait have to be at least 1, -ttl three times -loop_wait, and -events at least one")
	}
	for _, what := range o.events {
		if len(o.pathsOf(what)) == 0 {
			return o, measure.Usage("-paths has none of the event %s", what)
		}
	}
	return o, nil
}

// pathsOf returns those paths of an event that were asked for.
func (o *options) pathsOf(what string) (paths []path) {
	of := writerPaths
	if readerTitles[what] != "" {
		of = readerPaths
	}
	for _, p := range of {
		if slices.Contains(o.paths, p.name) {
			paths = append(paths, p)
		}
	}
	return paths
}
