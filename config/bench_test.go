package config

import (
	"fmt"
	"testing"

	"kubeproxy/registry"
)

// A plant is a mux with one source and one queue, that runs without goroutines, so that what is
// measured is the work alone.
type plant struct {
	mux      *Mux
	queue    *queue
	all      registry.Update // what the source said, as a SET
	versions [2][]*registry.Service
	one      registry.Update
}

func newPlant(services int) *plant {
	b := NewBroadcaster()
	b.Add(HandlerFunc(func(registry.Batch) {}))
	p := &plant{mux: NewMux(b), queue: b.queues[0]}
	p.mux.Channel("one")
	s := set()
	for i := range services {
		name := fmt.Sprintf("service-%d", i)
		first := newService(name, 1)
		s.Services = append(s.Services, registry.Change[registry.Service]{Name: first.Name, Value: first})
		s.Endpoints = append(s.Endpoints, registry.Change[registry.Endpoints]{Name: first.Name, Value: newEndpoints(name, 1)})
		p.versions[0] = append(p.versions[0], first)
		p.versions[1] = append(p.versions[1], newService(name, 2))
	}
	p.all = s.Update
	p.one.Services = make([]registry.Change[registry.Service], 1)
	p.one.Received = p.all.Received
	p.mux.merge(0, p.mux.sources[0], p.all)
	p.queue.take()
	return p
}

// change takes one change of a service all the way from the mux into the batch.
func (p *plant) change(i, version int) (registry.Batch, bool) {
	v := p.versions[version%2][i]
	p.one.Services[0] = registry.Change[registry.Service]{Name: v.Name, Value: v}
	p.mux.merge(0, p.mux.sources[0], p.one)
	return p.queue.take()
}

// What one change costs, merge, queue and batch together, among so many other services.
func BenchmarkMergeOneChange(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlant(n)
			b.ReportAllocs()
			for version := 1; b.Loop(); version++ {
				if batch, ok := p.change(n/2, version); !ok || len(batch.Services) != 1 {
					b.Fatal("not one change")
				}
			}
		})
	}
}

// The same with another service each time, so that none of them stays in the processor's caches.
func BenchmarkMergeOneChangeAnywhere(b *testing.B) {
	for _, n := range []int{10, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPlant(n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if batch, ok := p.change(i%n, 1+i/n); !ok || len(batch.Services) != 1 {
					b.Fatal("not one change")
				}
			}
		})
	}
}

// What a resync costs that finds nothing new among so many services and as many endpoints.
func BenchmarkUnchangedSet(b *testing.B) {
	const n = 10_000
	p := newPlant(n)
	b.Run(fmt.Sprint(n), func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			p.mux.merge(0, p.mux.sources[0], p.all)
		}
	})
	if _, ok := p.queue.take(); ok {
		b.Fatal("something changed")
	}
}
