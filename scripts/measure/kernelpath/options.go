//go:build linux

package kernelpath

import (
	"context"
	"time"

	"kubeproxy/scripts/internal/measure"
)

const about = `
Measures round trips, connections and datagrams from a client to a backend, in three network namespaces: routed by the node, by one DNAT rule
written by hand, by kube-proxy in the kernel, and by kube-proxy in userspace. With -changes, how long a change of an endpoint takes from etcd to the kernel. Needs ip, nsenter and nft.
`

// maxServices is how many ports there are above firstMany.
const maxServices = 65535 - firstMany

type options struct {
	measure.Options
	services int
	old      string
	window   time.Duration
	local    bool
	changes  bool
}

func parseOptions(args []string) (options, error) {
	var o options
	f := o.FlagSet("kernel", about, 8, 20*time.Minute)
	f.IntVar(&o.services, "services", 0, "so many more `services` in the kernel")
	f.DurationVar(&o.window, "time", time.Second, "how `long` each way is measured in a round")
	f.BoolVar(&o.local, "local", false, "the clients are on the node")
	f.StringVar(&o.old, "old", "", "compare with this earlier build of kube-proxy, a `FILE`: the two run in turn, one at a time")
	f.BoolVar(&o.changes, "changes", false, "measure changes in etcd instead of traffic: until they are in force, and what they cost")
	if err := measure.Parse(f, args); err != nil {
		return o, err
	}
	switch {
	case o.Rounds < 1:
		return o, measure.Usage("-rounds=%d: at least 1", o.Rounds)
	case o.services < 0 || o.services > maxServices:
		return o, measure.Usage("-services=%d: from 0 to %d", o.services, maxServices)
	case o.changes && o.old != "":
		return o, measure.Usage("-old contradicts -changes")
	case o.window <= 0:
		return o, measure.Usage("-time=%v: more than 0", o.window)
	case o.changes && o.services < 1:
		return o, measure.Usage("-changes needs -services=N: those that change")
	}
	o.WithoutEtcd = !o.changes
	return o, nil
}

// Parse reads the command line of this measurement, and gives what it does.
func Parse(args []string) (measure.Options, func(context.Context, *measure.Site) error, error) {
	o, err := parseOptions(args)
	if err != nil {
		return o.Options, nil, err
	}
	return o.Options, func(ctx context.Context, s *measure.Site) error {
		b := bench{Site: s, opts: o}
		defer b.end()
		if o.changes {
			return b.runChanges(ctx)
		}
		return b.run(ctx)
	}, nil
}
