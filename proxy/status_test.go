package proxy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A stuckEngine neither opens nor closes a port until it is released: as a loop that stands still does.
type stuckEngine struct {
	*fakeEngine
	entered chan struct{} // receives when a call has come
	release chan struct{} // lets one call go on
}

func (e *stuckEngine) listen(id portID, owner *atomic.Pointer[claim]) (socket, error) {
	e.entered <- struct{}{}
	<-e.release
	s, err := e.fakeEngine.listen(id, owner)
	if err != nil {
		return nil, err
	}
	return &stuckSocket{s, e}, nil
}

type stuckSocket struct {
	socket
	engine *stuckEngine
}

func (s *stuckSocket) close() {
	s.engine.entered <- struct{}{}
	<-s.engine.release
	s.socket.close()
}

func TestAStatusNeverWaitsForAnUpdateInProgress(t *testing.T) {
	p, fake := newFakeProxier()
	apply(p, service("old", 1, tcpPort(79)))
	e := &stuckEngine{fake, make(chan struct{}), make(chan struct{})}
	p.engine = e
	p.listeners[tcpPort(79)].socket = &stuckSocket{p.listeners[tcpPort(79)].socket, e}
	updated := make(chan struct{})
	go func() {
		defer close(updated)
		setEndpoints(p.lb, web, 1)
		apply(p, service("old", 0), service("web", 1, tcpPort(80)), service("other", 2, tcpPort(80)))
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
				if got[i].Port != want[i].Port || got[i].Owner != want[i].Owner || got[i].Err != want[i].Err || len(got[i].Waiting) != len(want[i].Waiting) {
					t.Errorf("while the engine is stuck in %s, the status is %+v; want %+v", when, got[i], want[i])
				}
			}
			if n := p.PortCounts()[registry.TCP]; n.Open != 0 || n.Unopened != len(want) {
				t.Errorf("while the engine is stuck in %s, the counts are %+v", when, n)
			}
			p.Limits()
			p.Totals()
			p.AcceptPauses()
			p.lb.Status()
		}()
		proxytest.Receive(t, looked, "the status while the engine is stuck in "+when)
	}
	waiting := PortStatus{Port: 80, Owner: registry.PortKey{Name: web}, Waiting: make([]registry.PortKey, 1), Err: errOpening}
	look("close a port", waiting)
	e.release <- struct{}{}
	look("open a port", waiting)
	e.release <- struct{}{}
	proxytest.Receive(t, updated, "the update to end")
	if got := p.PortCounts()[registry.TCP]; got.Open != 1 || got.Unopened != 0 || got.Waiting != 1 {
		t.Errorf("afterwards the counts are %+v", got)
	}
}

// TestEndpointHealthDoesNotDependOnTheTimeOfDay: times of the kernel's monotonic clock do not move when an operator or
// NTP sets the time of day.
func TestEndpointHealthDoesNotDependOnTheTimeOfDay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := rotationOf(addr(1)).awake().endpoints[0]
		e.failed(registry.TCP)
		if got := e.downUntil(registry.TCP) - sinceStart(); got != firstDown {
			t.Errorf("by the monotonic clock the endpoint is ejected for %v, want %v", got, firstDown)
		}
		if got := e.status().DownUntil; !got.Equal(time.Now().Add(firstDown)) {
			t.Errorf("the status says until %v, want a second from now, %v", got, time.Now())
		}
	})
	files, err := filepath.Glob("*.go")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(file, "_test.go") && regexp.MustCompile(`\.Unix(Nano|Milli|Micro)?\(\)`).Match(text) {
			t.Errorf("%s reads the time of day as a number, which is not monotonic", file)
		}
	}
}
