//go:build linux

package takeover

import (
	"time"

	"kubeproxy/scripts/internal/measure"
)

const about = `
Replaces kube-proxy by a new process many times in a row while it carries clients, and then HAProxy by its reload, with and
without hard-stop-after. It counts what clients notice. It prints each value of kube-proxy beside its bar, and ends with
exit status 1 where one is missed. Four minutes.

It needs a limit of descriptors (ulimit -n) of four for each TCP connection. What has to be installed for HAProxy, on
Debian: apt-get install -y --no-install-recommends haproxy. Without it there is no comparison.
`

// options is the command line.
type options struct {
	measure.Options
	times       int // take-overs
	connections int
	sessions    int
	haproxy     bool
	engine      string
}

func parseOptions(args []string) (options, error) {
	var o options
	f := o.FlagSet("takeover", about, 1, 15*time.Minute)
	f.IntVar(&o.times, "times", 20, "how many `take-overs` in a row")
	f.IntVar(&o.connections, "connections", 4000, "how many TCP `connections` are held")
	f.IntVar(&o.sessions, "sessions", 1000, "how many UDP `sessions` are held")
	f.StringVar(&o.engine, "engine", "auto", "the `engine` of kube-proxy")
	f.BoolVar(&o.haproxy, "haproxy", true, "measure HAProxy, too")
	if err := measure.Parse(f, args); err != nil {
		return o, err
	}
	if o.Rounds < 1 || o.times < 1 || o.connections < 1 || o.sessions < 1 {
		return o, measure.Usage("-rounds, -times, -connections and -sessions have to be at least 1")
	}
	return o, nil
}

// ours is the subject that has bars.
const ours = "kube-proxy"

// A bench is what the subjects share.
type bench struct {
	*measure.Site
	options
	at      ports // of the services, and of their backends
	etcdURL string
}
