package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/ports"
	"kubeproxy/registry"
)

// A machine has other programs on some ports.
type machine struct {
	*fakeEngine
	mu    sync.Mutex // guards the fields below
	taken map[registry.ListenerID]bool
	tried map[registry.ListenerID]int // how often a port was tried to be opened
}

// occupy lets a program have a port, or let go of it.
func (m *machine) occupy(id registry.ListenerID, taken bool) {
	m.fakeEngine.mu.Lock()
	defer m.fakeEngine.mu.Unlock()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken[id] = taken
	delete(m.refuse, id)
	if taken {
		m.refuse[id] = fmt.Errorf("listen: %w", syscall.EADDRINUSE)
	}
}

// refused has the machine refuse to open a port; nil: it opens.
func (m *machine) refused(id registry.ListenerID, err error) {
	m.fakeEngine.mu.Lock()
	defer m.fakeEngine.mu.Unlock()
	if delete(m.refuse, id); err != nil {
		m.refuse[id] = err
	}
}

// newMachine returns a proxier that runs on a machine, until the test ends.
func newMachine(t *testing.T) (*Proxier, *machine) {
	p, e := newFakeProxier()
	m := &machine{fakeEngine: e, taken: make(map[registry.ListenerID]bool), tried: make(map[registry.ListenerID]int)}
	p.gate.System.InUse = func(_ netip.Addr, ids, _ []registry.ListenerID) map[registry.ListenerID]bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		inUse := make(map[registry.ListenerID]bool)
		for _, id := range ids {
			inUse[id] = m.taken[id]
		}
		return inUse
	}
	p.gate.System.OwnLocal = func() map[registry.ListenerID]bool { return nil }
	p.gate.System.LocalRange = func() ports.LocalRange { return ports.LocalRange{} }
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p, m
}

// opensAfter waits until a port is open, and returns how long that took.
func (m *machine) opensAfter(t *testing.T, id registry.ListenerID) time.Duration {
	t.Helper()
	start := time.Now()
	for m.owner(id) == "" {
		if time.Since(start) > time.Hour {
			t.Fatalf("%v has not been opened", id)
		}
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
	}
	return time.Since(start)
}

func TestAPortThatAnotherProgramHeldIsTakenOnceItHasBeenFreeFor15Seconds(t *testing.T) {
	ssh := enginetest.TCPPort(22)
	for _, c := range []struct {
		name string
		do   func(p *Proxier, m *machine) // before it is free for good
	}{
		{"it goes", func(*Proxier, *machine) {}},
		{"it restarts, again and again", func(p *Proxier, m *machine) {
			for range 10 {
				m.occupy(ssh, false)
				time.Sleep(13 * time.Second)
				m.occupy(ssh, true)
				time.Sleep(2 * time.Second)
			}
		}},
		{"it restarts while a successor is at work, so that nobody looks", func(p *Proxier, m *machine) {
			m.occupy(ssh, false)
			time.Sleep(10 * time.Second)
			p.mu.Lock()
			p.stage = offers
			p.mu.Unlock()
			m.occupy(ssh, true)
			time.Sleep(10 * time.Second)
			m.occupy(ssh, false)
			p.Thaw()
			synctest.Wait()
		}},
		{"the record is written anew while it restarts", func(p *Proxier, m *machine) {
			m.occupy(ssh, false)
			for range 20 {
				apply(p, service("greedy", 0))
				time.Sleep(time.Second)
				apply(p, service("greedy", 2, ssh))
				time.Sleep(time.Second)
			}
			m.occupy(ssh, true)
			time.Sleep(2 * time.Second)
		}},
		{"another service comes to claim it while it restarts", func(p *Proxier, m *machine) {
			apply(p, service("greedy", 0))
			time.Sleep(30 * time.Minute)
			m.occupy(ssh, false)
			apply(p, service("greedy", 0), service("other", 3, ssh))
			time.Sleep(13 * time.Second)
			m.occupy(ssh, true)
			time.Sleep(2 * time.Second)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p, m := newMachine(t)
				m.occupy(ssh, true)
				apply(p, service("greedy", 1, ssh, enginetest.TCPPort(8000)))
				wantOwners(t, m.fakeEngine, map[registry.ListenerID]string{enginetest.TCPPort(8000): "greedy"})
				if s := p.Status()[0]; s.Err == nil || !strings.Contains(s.Err.Error(), "once it has been free for 15s") {
					t.Errorf("status %+v; want that it is taken once it has been free", s)
				}
				time.Sleep(time.Minute)
				c.do(p, m)
				if got := m.owner(ssh); got != "" {
					t.Fatalf("%s took the port from a program that was back within 15 seconds", got)
				}
				m.occupy(ssh, false)
				if took := m.opensAfter(t, ssh); took < 15*time.Second || took > 18*time.Second {
					t.Errorf("it was taken after it had been free for %v; want 15 s", took)
				}
			})
		})
	}
}

// TestAHeldPortThatIsClaimedAgainDuringAShortageOpens: no descriptor is left for the port before it.
func TestAHeldPortThatIsClaimedAgainDuringAShortageOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newMachine(t)
		first, held := enginetest.TCPPort(22), enginetest.TCPPort(80)
		m.occupy(held, true)
		apply(p, service("web", 1, held))
		apply(p, service("web", 0))
		m.refused(first, fmt.Errorf("listen: %w", syscall.EMFILE))
		apply(p, service("ssh", 2, first), service("web", 3, held))
		for _, s := range p.Status() {
			if s.ID == held && (s.Err == nil || !strings.Contains(s.Err.Error(), "another program has the port")) {
				t.Errorf("status %+v; want that another program has the port, whatever else is short", s)
			}
		}
		m.refused(first, nil)
		m.occupy(held, false)
		m.opensAfter(t, first)
		if took := m.opensAfter(t, held); took > 18*time.Second {
			t.Errorf("it was opened after %v; want 15 s after it had become free", took)
		}
	})
}

// The local port of one of our own connections is no other program's: it is tried again as before, and named.
func TestAPortOfAnOwnConnectionIsNamedAndTriedAgainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newMachine(t)
		p.gate.System.OwnLocal = func() map[registry.ListenerID]bool {
			return map[registry.ListenerID]bool{enginetest.UDPPort(40000): true}
		}
		m.occupy(enginetest.UDPPort(40000), true)
		apply(p, service("dns", 1, enginetest.UDPPort(40000)))
		if s := p.Status()[0]; s.Err == nil || !strings.Contains(s.Err.Error(), "of this proxy has it as its local port") {
			t.Errorf("status %+v; want that it is a connection of this proxy", s)
		}
		time.Sleep(time.Minute)
		m.occupy(enginetest.UDPPort(40000), false)
		if took := m.opensAfter(t, enginetest.UDPPort(40000)); took > lastRetry+time.Second {
			t.Errorf("it was opened after %v; want at most %v", took, lastRetry)
		}
	})
}

func TestServicesHaveAtMostAQuarterOfTheLocalRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, m := newMachine(t)
		var mu sync.Mutex
		system := ports.LocalRange{Range: PortRange{First: 1000, Last: 1099}, Reserved: []PortRange{{First: 1000, Last: 1009}, {First: 1050, Last: 1059}}} // 80 of which 20 may be had
		p.gate.System.LocalRange = func() ports.LocalRange {
			mu.Lock()
			defer mu.Unlock()
			return system
		}
		var ids []registry.ListenerID
		for n := range uint16(200) {
			ids = append(ids, enginetest.TCPPort(950+n))
		}
		opened := func() (inRange, beside int) {
			m.fakeEngine.mu.Lock()
			defer m.fakeEngine.mu.Unlock()
			for id := range m.open {
				if system.Contains(id.Number) {
					inRange++
				} else {
					beside++
				}
			}
			return inRange, beside
		}
		want := func(when string, inRange, beside int) {
			t.Helper()
			if gotIn, gotBeside := opened(); gotIn != inRange || gotBeside != beside {
				t.Errorf("%s: %d ports of the range are open, and %d beside it; want %d and %d", when, gotIn, gotBeside, inRange, beside)
			}
		}
		apply(p, service("greedy", 1, ids...), service("dns", 2, enginetest.UDPPort(1020)))
		want("all claimed", 20+1, 120)
		for _, s := range p.Status() {
			if s.Err != nil && (!strings.Contains(s.Err.Error(), "ip_local_reserved_ports") || !strings.Contains(s.Err.Error(), "may have 20 of")) {
				t.Errorf("status %+v; want the limit, and what to do", s)
			}
		}
		apply(p, service("greedy", 1, ids[70:]...)) // of those that are open, it gives up 10 of the range
		want("some given up", 20+1, 120-60)
		mu.Lock()
		system.Reserved = []PortRange{{First: 1000, Last: 1059}}
		mu.Unlock()
		time.Sleep(lastRetry + time.Second)
		want("more reserved", 10+1-1, 60+30+1)
		apply(p, service("greedy", 0), service("dns", 0))
		apply(p, service("greedy", 1, ids...))
		want("all claimed anew after all were closed", 10, 110+50)
	})
}

func TestPortsAreAllowedByNamespace(t *testing.T) {
	in := func(namespace string) registry.Name { return registry.Name{Namespace: namespace, Name: "x"} }
	both := Config{AllowedPorts: []PortRange{{First: 8000, Last: 8999}}, NamespacePorts: map[string][]PortRange{"team-a": {{First: 9000, Last: 9099}, {First: 80, Last: 80}}}}
	only := Config{NamespacePorts: both.NamespacePorts}
	for _, c := range []struct {
		cfg       *Config
		namespace string
		port      uint16
		want      bool
	}{
		{&both, "default", 8000, true}, {&both, "default", 9000, false}, {&both, "team-b", 80, false},
		{&both, "team-a", 9000, true}, {&both, "team-a", 80, true}, {&both, "team-a", 8000, false},
		{&only, "team-a", 9000, true}, {&only, "team-a", 8000, false}, {&only, "default", 9000, false}, {&only, "default", 8000, false},
		{&Config{}, "default", 1, true},
		{&Config{EtcdPorts: []uint16{2379}}, "default", 2379, false},
	} {
		if err := c.cfg.Refusal(in(c.namespace), enginetest.TCPPort(c.port)); (err == nil) != c.want {
			t.Errorf("%v %v: port %d for namespace %s: %v", c.cfg.AllowedPorts, c.cfg.NamespacePorts, c.port, c.namespace, err)
		}
	}
	if err := (&Config{EtcdPorts: []uint16{2379}}).Refusal(in("default"), enginetest.UDPPort(2379)); err != nil {
		t.Errorf("etcd has no UDP port, and yet: %v", err)
	}
}

// One port may be refused to one namespace and owned by another.
func TestAPortRefusedToOneNamespaceIsServedForAnother(t *testing.T) {
	p, e := newFakeProxier()
	p.cfg.NamespacePorts = map[string][]PortRange{"team-a": {{First: 80, Last: 80}}}
	theirs, ours := service("b", 1, enginetest.TCPPort(80)), service("a", 2, enginetest.TCPPort(80))
	ours.Name.Namespace = "team-a"
	apply(p, theirs, ours)
	wantOwners(t, e, map[registry.ListenerID]string{enginetest.TCPPort(80): "team-a/a"})
	if got := p.PortCounts()[registry.TCP]; got != (PortCount{Open: 1, Refused: 1}) {
		t.Errorf("counts %+v", got)
	}
	theirs = service("b", 1, enginetest.TCPPort(81))
	apply(p, theirs, &registry.Service{Name: ours.Name})
	wantOwners(t, e, map[registry.ListenerID]string{})
	if got := p.Status(); len(got) != 1 || !got[0].Refused || got[0].ID.Number != 81 {
		t.Errorf("status %+v; want port 81 refused, and nothing else", got)
	}
}
