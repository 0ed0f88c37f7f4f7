package proxy

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A stuckEngine neither opens nor closes a port until it is released: as a loop that stands still does.
type stuckEngine struct {
	*fakeEngine
	entered chan struct{} // receives when a call has come
	release chan struct{} // lets one call go on
}

func (e *stuckEngine) Listen(id registry.ListenerID, owner *atomic.Pointer[engine.Claim], _ ...engine.Socket) (engine.Socket, error) {
	e.entered <- struct{}{}
	<-e.release
	s, err := e.fakeEngine.Listen(id, owner)
	if err != nil {
		return nil, err
	}
	return &stuckSocket{s, e}, nil
}

type stuckSocket struct {
	engine.Socket
	engine *stuckEngine
}

func (s *stuckSocket) Close() {
	s.engine.entered <- struct{}{}
	<-s.engine.release
	s.Socket.Close()
}

func TestAStatusNeverWaitsForAnUpdateInProgress(t *testing.T) {
	web := registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}
	p, fake := newFakeProxier()
	apply(p, service("old", 1, enginetest.TCPPort(79)))
	e := &stuckEngine{fake, make(chan struct{}), make(chan struct{})}
	p.engine = e
	p.listeners[enginetest.TCPPort(79)].socket = &stuckSocket{p.listeners[enginetest.TCPPort(79)].socket, e}
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		p.lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: {Name: web, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(enginetest.Address(1))}}}})
		apply(p, service("old", 0), service("web", 1, enginetest.TCPPort(80)), service("other", 2, enginetest.TCPPort(80)))
	}()
	look := func(when string, want ...PortStatus) {
		t.Helper()
		proxytest.Receive(t, e.entered, "the engine to be asked to "+when)
		looked := make(chan struct{})
		go func() {
			defer close(looked)
			got := p.Status()
			if len(got) != len(want) {
				t.Errorf("while the engine is stuck in %s, the status is %+v; want %+v", when, got, want)
			}
			for i := range min(len(got), len(want)) {
				if got[i].ID != want[i].ID || got[i].Owner != want[i].Owner || got[i].Err != want[i].Err || len(got[i].Waiting) != len(want[i].Waiting) {
					t.Errorf("while the engine is stuck in %s, the status is %+v; want %+v", when, got[i], want[i])
				}
			}
			if n := p.PortCounts()[registry.TCP]; n.Open != 0 || n.Unopened != len(want) {
				t.Errorf("while the engine is stuck in %s, the counts are %+v", when, n)
			}
			p.Limits()
			p.Totals()
			for range p.EachTotals() {
			}
			p.Service(web)
			p.AcceptPauses()
			p.lb.Status()
			p.lb.RotationStatus()
			p.lb.EndpointsOf(registry.PortKey{Name: web}, 1)
		}()
		proxytest.Receive(t, looked, "the status while the engine is stuck in "+when)
	}
	waiting := PortStatus{ID: enginetest.TCPPort(80), Owner: registry.PortKey{Name: web}, Waiting: make([]registry.PortKey, 1), Err: ErrOpening}
	look("close a port", waiting)
	e.release <- struct{}{}
	look("open a port", waiting)
	e.release <- struct{}{}
	proxytest.Receive(t, updated, "the update to end")
	if got := p.PortCounts()[registry.TCP]; got.Open != 1 || got.Unopened != 0 || got.Waiting != 1 {
		t.Errorf("afterwards the counts are %+v", got)
	}
}

// BenchmarkStatus looks at 10,000 ports. A change or a probe that needs the same lock waits for the reported time at most, on
// average over the looks.
func BenchmarkStatus(b *testing.B) {
	p, _ := newFakeProxier()
	var services []*registry.Service
	for i := range 10_000 {
		services = append(services, service(fmt.Sprintf("service-%05d", i), 1, enginetest.TCPPort(uint16(1000+i))))
	}
	apply(p, services...)
	var longest, sum time.Duration
	for b.Loop() {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if n := len(p.Status()); n != 10_000 {
				b.Errorf("%d ports; want 10,000", n)
			}
		}()
		longest = 0
		for waiting := true; waiting; {
			began := time.Now()
			p.view.Lock()
			longest = max(longest, time.Since(began))
			p.view.Unlock()
			select {
			case <-done:
				waiting = false
			default:
			}
		}
		sum += longest
	}
	b.ReportMetric(float64(sum.Microseconds())/float64(b.N), "µs-waited")
}

// A deadEngine opens no port.
type deadEngine struct{ *fakeEngine }

func (deadEngine) Listen(registry.ListenerID, *atomic.Pointer[engine.Claim], ...engine.Socket) (engine.Socket, error) {
	return nil, fmt.Errorf("%w: no memory", engine.ErrNotStarted)
}

// A node whose engine does not start is not ready: see health.openable.
func TestAPortCountsAsStarvedWhenTheEngineDoesNotStart(t *testing.T) {
	p, fake := newFakeProxier()
	p.engine = deadEngine{fake}
	apply(p, service("web", 1, enginetest.TCPPort(80)))
	if got := p.PortCounts()[registry.TCP]; got.Open != 0 || got.Unopened != 1 || got.Starved != 1 {
		t.Errorf("the counts are %+v; want one port that is starved", got)
	}
}
