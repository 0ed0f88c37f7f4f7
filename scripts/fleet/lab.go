//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/scripts/internal/measure"
)

// A lab is what the steps share: one etcd with everything in it, and the service that is seen to change.
type lab struct {
	options
	ps      *measure.Processes
	etcd    *measure.Etcd
	client  *clientv3.Client
	canary  *canary
	through *measure.Process // the grpc-proxy in between; nil: none

	alone  float64 // seconds of processor time that etcd uses in a second without nodes
	idling rates   // with the present fleet, in which nothing happens; zero if that was not measured
}

func newLab(ctx context.Context, o options, ps *measure.Processes) (*lab, error) {
	l := &lab{options: o, ps: ps}
	var err error
	if l.etcd, err = measure.NewEtcd(ps, o.etcd); err != nil {
		return nil, err
	}
	if err := l.etcd.Start(); err != nil {
		return nil, err
	}
	if l.client, err = measure.NewEtcdClient(l.etcd.URL); err != nil {
		return nil, err
	}
	if l.canary, err = newCanary(firstPort+o.services, o.endpoints); err != nil {
		return nil, err
	}
	if err := putServices(ctx, l.client, o.services, o.endpoints); err != nil {
		return nil, err
	}
	key, record := l.canary.spec()
	if _, err := l.client.Put(ctx, key, record); err != nil {
		return nil, err
	}
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
	l.client, err = measure.NewEtcdClient(l.etcd.URL)
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
func (l *lab) measure(ctx context.Context, report func(result) error) error {
	if err := l.solitude(ctx, report); err != nil {
		return err
	}
	if l.options.nodes > 0 {
		f := &nodes{n: l.options.nodes, binary: l.binary, dir: l.ps.Dir, services: l.services, canary: l.canary}
		for _, way := range l.ways {
			if err := l.measureFleet(ctx, f, way, report); err != nil {
				return err
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	for _, n := range l.sources {
		if err := l.measureFleet(ctx, &sources{n: n, ps: l.ps, exe: exe}, direct, report); err != nil {
			return err
		}
	}
	return nil
}

func (l *lab) measureFleet(ctx context.Context, f fleet, way string, report func(result) error) (err error) {
	url := l.etcd.URL
	if way == grpcProxy {
		if url, err = l.startGRPCProxy(); err != nil {
			return err
		}
		defer func() {
			l.through.Stop()
			l.through = nil
		}()
	}
	defer f.stop()
	l.idling = rates{}
	for _, s := range l.plan(way) {
		r := result{Fleet: f.String(), Way: way, Step: s.name, About: s.about}
		if err := s.do(ctx, f, url, &r); err != nil {
			return fmt.Errorf("%v, %s, %s: %w", f, way, s.name, err)
		}
		if len(r.Figures) == 0 {
			continue // it was only there for the next one
		}
		if err := report(r); err != nil {
			return err
		}
	}
	return nil
}

// startGRPCProxy starts etcd's own proxy, and gives the URL that it serves clients at.
func (l *lab) startGRPCProxy() (string, error) {
	port, err := measure.FreePorts(netip.MustParseAddr("127.0.0.1"), 1)
	if err != nil {
		return "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	if l.through, err = measure.Start(l.ps.Dir, grpcProxy, l.etcd.Binary, "grpc-proxy", "start", "--endpoints="+strings.TrimPrefix(l.etcd.URL, "http://"), "--listen-addr="+addr); err != nil {
		return "", err
	}
	return "http://" + addr, l.through.Await(time.Minute, func() bool {
		conn, err := net.Dial("tcp", addr)
		return err == nil && conn.Close() == nil
	})
}

func sorted(values []float64) []float64 { return slices.Sorted(slices.Values(values)) }
