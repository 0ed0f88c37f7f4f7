//go:build linux

package fleet

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A lab is what the steps share: one etcd with everything in it, and the service that is seen to change.
type lab struct {
	options
	site    *measure.Site
	etcd    *process.Etcd
	client  *clientv3.Client
	canary  *canary
	way     string
	through *process.Process // what is in between on that way; nil: nothing
	restart func() error     // starts it again

	alone  float64 // seconds of processor time that etcd uses in a second without nodes
	idling rates   // with the present fleet, in which nothing happens; zero if that was not measured
}

func newLab(ctx context.Context, o options, site *measure.Site) (_ *lab, err error) {
	defer try.Catch(&err)
	l := &lab{options: o, site: site}
	l.etcd = try.Get(measure.StartEtcd(site.Group, o.Etcd))
	l.client = try.Get(measure.NewEtcdClient(l.etcd.URL()))
	l.canary = try.Get(newCanary(firstPort+o.services, o.endpoints))
	try.Do(putServices(ctx, l.client, o.services, o.endpoints))
	key, record := l.canary.spec()
	try.Get(l.client.Put(ctx, key, record))
	_, err = l.change(ctx)
	return l, err
}

func (l *lab) close() {
	l.canary.close()
	l.client.Close()
}

// reconnect makes a new client: the pauses of an old one would be counted as etcd's.
func (l *lab) reconnect() error {
	l.client.Close()
	var err error
	l.client, err = measure.NewEtcdClient(l.etcd.URL())
	return err
}

// change has the canary's endpoints replaced by the other set.
func (l *lab) change(ctx context.Context) (change, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.PutTimeout)
	defer cancel()
	c := change{set: 1 - l.canary.now, put: measure.SinceBoot()}
	resp, err := l.client.Put(ctx, l.canary.key, l.canary.sets[c.set].record)
	if err != nil {
		return c, fmt.Errorf("put: %w", err)
	}
	l.canary.now = c.set
	c.revision, c.answered = resp.Header.Revision, measure.SinceBoot()
	return c, nil
}

// rates are what is used in a second, in seconds and bytes.
type rates struct{ etcd, through, fleet, sent float64 }

// measure does all steps with all fleets.
func (l *lab) measure(ctx context.Context, report func(*measure.Table) error) (err error) {
	defer try.Catch(&err)
	try.Do(l.solitude(ctx, report))
	if l.options.nodes > 0 {
		f := &nodes{n: l.options.nodes, binary: l.Binary, dir: l.site.Dir, services: l.services, canary: l.canary, nice: l.nice}
		for _, way := range l.ways {
			if way != apiServer {
				try.Do(l.measureFleet(ctx, f, way, report))
			}
		}
	}
	for _, n := range l.sources {
		for _, way := range l.ways {
			if way != grpcProxy {
				try.Do(l.measureFleet(ctx, &sources{n: n, site: l.site, nice: l.nice, way: way}, way, report))
			}
		}
	}
	return nil
}

func (l *lab) measureFleet(ctx context.Context, f fleet, way string, report func(*measure.Table) error) (err error) {
	defer try.Catch(&err)
	l.way = way
	url := l.etcd.URL()
	switch way {
	case grpcProxy:
		url = try.Get(l.startGRPCProxy())
	case apiServer:
		url = try.Get(l.startAPIServer(""))
	}
	defer func() {
		if l.through != nil {
			l.through.Stop()
			l.through = nil
		}
	}()
	defer f.stop()
	l.idling = rates{}
	for _, s := range l.plan(way) {
		r := table(f.String(), way, s.name, s.about)
		if err := s.do(ctx, f, url, r); err != nil {
			return fmt.Errorf("%v, %s, %s: %w", f, way, s.name, err)
		}
		if len(r.Metrics) == 0 {
			continue // it was only there for the next one
		}
		try.Do(report(r))
	}
	return nil
}

// startGRPCProxy starts etcd's own proxy, and gives the URL that it serves clients at.
func (l *lab) startGRPCProxy() (url string, err error) {
	addr, through, err := process.StartGRPCProxy(l.site.Dir, l.etcd.Path, 6000, 10000, l.etcd.Client)
	l.through = through
	return "http://" + addr, err
}

func sorted(values []float64) []float64 { return slices.Sorted(slices.Values(values)) }
