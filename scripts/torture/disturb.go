//go:build linux

package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"time"

	"kubeproxy/internal/backoff"
)

// disturb stops the process and has others take over from it, one after the other, until ctx ends.
func (t *torture) disturb(ctx context.Context, r *rand.Rand) error {
	if !t.stop && len(t.takeovers) == 0 {
		return nil
	}
	for {
		backoff.Sleep(ctx, time.Duration(r.IntN(int(time.Second))))
		if ctx.Err() != nil {
			return nil
		}
		if len(t.takeovers) > 0 && (!t.stop || r.IntN(2) == 0) {
			before, next := t.proxy.engine, t.takeovers[r.IntN(len(t.takeovers))]
			err := t.proxy.start(next)
			if errors.Is(err, errGoesOn) {
				t.results.givenUp++
				continue
			}
			if err != nil {
				return err
			}
			t.results.takeovers++
			if before == "portable" || next == "portable" {
				t.results.drained++
			}
			continue
		}
		p := t.proxy.process()
		p.Pause()
		time.Sleep(time.Duration(r.IntN(int(300 * time.Millisecond)))) // shorter than a dial may last
		p.Resume()
		t.results.stops++
	}
}

// reap has endpoints of a service die and return, and leave the record and return to it, until ctx ends. Then all are back.
func (t *torture) reap(ctx context.Context, f *flowsOf, r *rand.Rand) (err error) {
	for ctx.Err() == nil && err == nil {
		backoff.Sleep(ctx, time.Duration(r.IntN(int(60*time.Millisecond))))
		p := f.places[r.IntN(len(f.places))]
		switch r.IntN(4) {
		case 0: // it leaves the record
			var others []netip.AddrPort
			for _, other := range f.places {
				if other != p {
					others = append(others, other.addr)
				}
			}
			err = f.writeEndpoints(t.proxy.registry(), others...)
		case 1: // all are in the record
			err = f.writeEndpoints(t.proxy.registry(), f.addrs()...)
		case 2: // it dies, and the next one may die before it returns
			p.die()
		default:
			for _, p := range f.places {
				if p.conn == nil {
					err = p.revive()
				}
			}
		}
		t.results.deaths++
	}
	for _, p := range f.places {
		if p.conn == nil && err == nil {
			err = p.revive()
		}
	}
	if err != nil {
		return err
	}
	return f.writeEndpoints(t.proxy.registry(), f.addrs()...)
}

func (f *flowsOf) addrs() (all []netip.AddrPort) {
	for _, p := range f.places {
		all = append(all, p.addr)
	}
	return all
}
