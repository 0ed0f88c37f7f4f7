package proxy

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/ports"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// newRunning returns a proxier with a keeper that runs, on real sockets, until the test ends or stop is called.
func newRunning(t *testing.T, cfg Config) (p *Proxier, k *fakeKeeper, stop func()) {
	t.Helper()
	k = &fakeKeeper{room: 9, kept: make(map[registry.ListenerID]bool)}
	cfg.Keeper = k
	p = NewProxier(cfg, balance.NewLoadBalancerRR(false))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stopped := false
	stop = func() {
		if cancel(); !stopped {
			stopped = true
			if err := proxytest.Receive(t, done, "the end of Run"); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return p, k, stop
}

// killedWith returns the socket of a port as a process inherits it from one that was killed. The service manager has a copy, too.
func killedWith(t *testing.T, id registry.ListenerID) (fd int) {
	t.Helper()
	at := id.Addr
	if !at.IsValid() {
		at = netip.IPv4Unspecified()
	}
	l, err := net.Listen("tcp", netip.AddrPortFrom(at, id.Number).String())
	if err != nil {
		t.Fatal(err)
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	t.Cleanup(func() { f.Close() })
	if fd, err = sockopt.Duplicate(int(f.Fd())); err != nil {
		t.Fatal(err)
	}
	return fd
}

// inherit has a proxier begin with the sockets of one that was killed.
func inherit(t *testing.T, p *Proxier, ids ...registry.ListenerID) {
	t.Helper()
	sockets := make(map[registry.ListenerID]int)
	for _, id := range ids {
		sockets[id] = killedWith(t, id)
	}
	p.Inherit(sockets)
}

// succeed has a proxier take over the listeners of another one.
func succeed(t *testing.T, from, to *Proxier, first registry.Batch) {
	t.Helper()
	items, err := from.Listeners()
	if err != nil {
		t.Fatal(err)
	}
	var passed []takeover.Item
	for _, item := range items {
		passed = append(passed, duplicated(t, item))
	}
	if _, err := to.AdoptListeners(passed); err != nil {
		t.Fatal(err)
	}
	to.OnUpdate(first)
	to.Serve()
	from.Release()
}

func batchOf(services ...*registry.Service) registry.Batch {
	batch := registry.Batch{Services: make(map[registry.Name]*registry.Service)}
	for _, s := range services {
		batch.Services[s.Name] = s
	}
	return batch
}

func partialOf(services ...*registry.Service) registry.Batch {
	batch := batchOf(services...)
	batch.Partial = true
	return batch
}

// serviceAt is a service whose ports are at addresses of their own.
func serviceAt(name string, ids ...registry.ListenerID) *registry.Service {
	s := service(name, 1, ids...)
	for i, id := range ids {
		s.Ports[i].Addr = id.Addr
	}
	return s
}

// freePorts returns two free ports, the lower one first.
func freePorts(t *testing.T) (low, high registry.ListenerID) {
	a, b := proxytest.FreePort(t), proxytest.FreePort(t)
	return enginetest.TCPPort(min(a, b)), enginetest.TCPPort(max(a, b))
}

func whyClosed(p *Proxier, id registry.ListenerID) error {
	for _, s := range p.Status() {
		if s.ID == id {
			return s.Err
		}
	}
	return nil
}

func wantListening(t *testing.T, when string, id registry.ListenerID, want bool) {
	t.Helper()
	at := proxytest.On(id.Number)
	if id.Addr.IsValid() {
		at = netip.AddrPortFrom(id.Addr, id.Number)
	}
	if got := proxytest.Listens(at); got != want {
		t.Errorf("%s: %v listens: %t; want %t", when, id, got, want)
	}
}

func onEngines(t *testing.T, test func(t *testing.T, kind Kind)) {
	for _, kind := range []Kind{Portable, Epoll} {
		t.Run(kind.String(), func(t *testing.T) { test(t, kind) })
	}
}

// hasRoomForOne gives p a local range that has both ports, and of which services may have one.
func hasRoomForOne(p *Proxier, low, high registry.ListenerID) {
	system := ports.LocalRange{Range: PortRange{First: low.Number, Last: max(high.Number, low.Number+4)}}
	if high.Number-low.Number > 6 {
		system.Reserved = []PortRange{{First: low.Number + 3, Last: high.Number - 2}} // five are left
	}
	p.gate.System.LocalRange = func() ports.LocalRange { return system }
}

// TestAnOpenPortStaysOpenWhereThereIsRoomForOneOnly, whichever comes first by number: a port that waited for room does not get that of a
// port which a predecessor, or a process that was killed, had open.
func TestAnOpenPortStaysOpenWhereThereIsRoomForOneOnly(t *testing.T) {
	onEngines(t, func(t *testing.T, kind Kind) {
		low, high := freePorts(t)
		both := batchOf(service("old", 1, high), service("new", 2, low))
		for name, bounded := range map[string]func(p *Proxier){
			"a quarter of the local range": func(p *Proxier) { hasRoomForOne(p, low, high) },
			"descriptors":                  func(p *Proxier) { p.engine.Addresses().Budget.Most = 1 },
		} {
			t.Run(name, func(t *testing.T) {
				first, _, _ := newRunning(t, Config{Engine: kind})
				next, _, stop := newRunning(t, Config{Engine: kind})
				bounded(first)
				bounded(next)
				first.OnUpdate(batchOf(service("old", 1, high)))
				first.OnUpdate(batchOf(service("new", 2, low)))
				succeed(t, first, next, both)
				if err := whyClosed(next, high); err != nil {
					t.Errorf("it was open before the take-over: %v", err)
				}
				wantListening(t, "after a take-over", high, true)
				wantListening(t, "after a take-over", low, false)
				stop()

				third, _, _ := newRunning(t, Config{Engine: kind})
				bounded(third)
				inherit(t, third, high)
				third.OnUpdate(both)
				if err := whyClosed(third, high); err != nil {
					t.Errorf("it was open before the process was killed: %v", err)
				}
				wantListening(t, "after a crash", high, true)
				wantListening(t, "after a crash", low, false)
			})
		}
	})
}

// TestAKeptSocketWaitsUntilEachSourceHasBeenRead: a client that connects meanwhile is served once its source has been read. A socket that no
// service claims even then is closed.
func TestAKeptSocketWaitsUntilEachSourceHasBeenRead(t *testing.T) {
	onEngines(t, func(t *testing.T, kind Kind) {
		claimed, unclaimed := freePorts(t)
		p, k, stop := newRunning(t, Config{Engine: kind})
		inherit(t, p, claimed, unclaimed)
		p.OnUpdate(partialOf())
		client := proxytest.TalkTo(t, proxytest.On(claimed.Number))
		wantListening(t, "before its source has been read", unclaimed, true)
		batch := partialOf(service("web", 1, claimed))
		name := registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}
		batch.Endpoints = map[registry.Name]*registry.Endpoints{name: {Name: name, ByPort: []registry.PortAddrs{{
			Addrs: registry.NewAddrs(proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("web")).Addr)}}}}
		p.OnUpdate(batch)
		client.MustSay(t, "hello")
		wantListening(t, "before one more source has been read", unclaimed, true)
		client.Conn.Close()
		p.OnUpdate(batchOf())
		wantListening(t, "after that", claimed, true)
		wantListening(t, "after that", unclaimed, false)
		stop()
		if len(k.kept) > 0 {
			t.Errorf("the keeper has %v at the end", k.kept)
		}
	})
}

// TestAKeptSocketWhoseSourceStaysAwayIsClosedAtTheEnd, and does not outlive the process in the keeper.
func TestAKeptSocketWhoseSourceStaysAwayIsClosedAtTheEnd(t *testing.T) {
	port := enginetest.TCPPort(proxytest.FreePort(t))
	p, k, stop := newRunning(t, Config{})
	k.kept[port] = true
	inherit(t, p, port)
	p.OnUpdate(partialOf())
	wantListening(t, "before its source has been read", port, true)
	stop()
	wantListening(t, "after the end", port, false)
	if len(k.kept) > 0 {
		t.Errorf("the keeper has %v at the end", k.kept)
	}
}

// TestAKeptSocketThatNoServiceMayHaveDoesNotWait for a source.
func TestAKeptSocketThatNoServiceMayHaveDoesNotWait(t *testing.T) {
	operators, ofTeam := freePorts(t)
	p, _, _ := newRunning(t, Config{ReservedPorts: []uint16{operators.Number}, NamespacePorts: map[string][]PortRange{"team": {{First: ofTeam.Number, Last: ofTeam.Number}}}})
	inherit(t, p, operators, ofTeam)
	p.OnUpdate(partialOf())
	wantListening(t, "a port of operators", operators, false)
	wantListening(t, "a port of one namespace", ofTeam, true)
}

// TestKeptSocketsThatWaitHaveTheRoomOfListeners: others may not use it, and those without room do not wait.
func TestKeptSocketsThatWaitHaveTheRoomOfListeners(t *testing.T) {
	a, b := freePorts(t)
	other := enginetest.TCPPort(proxytest.FreePort(t))
	p, _, _ := newRunning(t, Config{})
	budget := p.engine.Addresses().Budget
	budget.Most = 1
	inherit(t, p, a, b)
	want := func(when string, open int64) {
		t.Helper()
		if got := budget.Open.Load(); got != open {
			t.Errorf("%s: %d listeners are counted; want %d", when, got, open)
		}
	}
	p.OnUpdate(partialOf())
	want("two sockets and room for one", 1)
	if proxytest.Listens(proxytest.On(a.Number)) == proxytest.Listens(proxytest.On(b.Number)) {
		t.Error("of two sockets one has room, but both or none listen")
	}
	p.OnUpdate(partialOf(service("other", 1, other)))
	if err := whyClosed(p, other); !lacksDescriptors(err) {
		t.Errorf("a third port: %v; want that there is no room", err)
	}
	p.OnUpdate(partialOf(service("web", 1, a, b)))
	want("both are claimed", 1)
	wantListening(t, "a third port", other, false)
	p.OnUpdate(batchOf())
	p.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{service("web", 1).Name: nil, service("other", 1).Name: nil}})
	want("at the end", 0)
}

// TestAKeptSocketWaitsThroughATakeOver while its source has not been read. A port that the predecessor had for a service does not: the
// successor has read that service's source.
func TestAKeptSocketWaitsThroughATakeOver(t *testing.T) {
	onEngines(t, func(t *testing.T, kind Kind) {
		kept, gone := freePorts(t)
		first, _, stop := newRunning(t, Config{Engine: kind})
		inherit(t, first, kept)
		first.OnUpdate(partialOf(service("gone", 1, gone)))
		next, _, _ := newRunning(t, Config{Engine: kind})
		succeed(t, first, next, partialOf())
		stop()
		wantListening(t, "after the take-over", kept, true)
		wantListening(t, "after the take-over", gone, false)
		third, _, _ := newRunning(t, Config{Engine: kind})
		succeed(t, next, third, batchOf(service("web", 1, kept)))
		if err := whyClosed(third, kept); err != nil {
			t.Errorf("its source has been read, and it is closed: %v", err)
		}
		wantListening(t, "once its source has been read", kept, true)
	})
}

// newTelling returns a proxier on real sockets, and its keeper with room for so many. It does not run: it tells the keeper when the test says.
func newTelling(t *testing.T, room int) (*Proxier, *fakeKeeper) {
	t.Helper()
	k := &fakeKeeper{room: room, kept: make(map[registry.ListenerID]bool)}
	p := NewProxier(Config{Keeper: k}, balance.NewLoadBalancerRR(false))
	t.Cleanup(func() {
		ended, end := context.WithCancel(context.Background())
		end()
		if err := p.Run(ended); err != nil {
			t.Error(err)
		}
	})
	return p, k
}

// servicesAtPorts makes so many services, each with a TCP port of its own.
func servicesAtPorts(t *testing.T, ports int) (services []*registry.Service) {
	for i := range ports {
		services = append(services, service(fmt.Sprint("s", i), 1, enginetest.TCPPort(proxytest.FreePort(t))))
	}
	return services
}

// TestASuccessorKnowsWhichSocketsAreKept: the service manager does not say that it keeps no more. So one that the successor counts in, and that is not
// kept, keeps others from being kept.
func TestASuccessorKnowsWhichSocketsAreKept(t *testing.T) {
	const ports, room = 12, 3
	first, k := newTelling(t, room)
	services := servicesAtPorts(t, ports)
	waits := enginetest.TCPPort(proxytest.FreePort(t)) // for a source that has not been read
	inherit(t, first, waits)
	k.kept[waits] = true
	first.OnUpdate(partialOf(services...))
	if err := first.tellKeeper(); err != nil {
		t.Fatal(err)
	}
	goes := services[slices.IndexFunc(services, func(s *registry.Service) bool { return k.kept[s.Ports[0].ID()] })]
	gone := goes.Ports[0].ID()

	next, nextKeeper := newTelling(t, room)
	succeed(t, first, next, partialOf(services...))
	if err := next.tellKeeper(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(nextKeeper.kept, k.kept) {
		t.Errorf("the successor takes %v for kept; kept are %v", nextKeeper.kept, k.kept)
	}

	third, thirdKeeper := newTelling(t, room)
	stays := slices.DeleteFunc(services, func(s *registry.Service) bool { return s == goes })
	stays = append(stays, service("another", 1, enginetest.TCPPort(proxytest.FreePort(t))))
	succeed(t, next, third, partialOf(stays...))
	if err := third.tellKeeper(); err != nil {
		t.Fatal(err)
	}
	if len(thirdKeeper.kept) != room {
		t.Errorf("once %v has gone, %v are kept; want %d", gone, thirdKeeper.kept, room)
	}
	for id := range k.kept {
		if want := id != gone; thirdKeeper.kept[id] != want {
			t.Errorf("once %v has gone, %v is kept: %t; want %t", gone, id, !want, want)
		}
	}
}

// TestAThirdProcessKnowsWhichSocketsAreKept though it takes over before the second has told the service manager anything.
func TestAThirdProcessKnowsWhichSocketsAreKept(t *testing.T) {
	const ports, room = 12, 3
	first, k := newTelling(t, room)
	services := servicesAtPorts(t, ports)
	first.OnUpdate(batchOf(services...))
	if err := first.tellKeeper(); err != nil {
		t.Fatal(err)
	}
	next, _ := newTelling(t, room)
	succeed(t, first, next, batchOf(services...))
	third, thirdKeeper := newTelling(t, room)
	succeed(t, next, third, batchOf(services...))
	if err := third.tellKeeper(); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(thirdKeeper.kept, k.kept) {
		t.Errorf("the third process takes %v for kept; kept are %v", thirdKeeper.kept, k.kept)
	}
}

// TestASocketThatTheManagerIsBeingToldOfIsToldAgainByASuccessor: the predecessor learns the outcome only after it has sent its listeners.
func TestASocketThatTheManagerIsBeingToldOfIsToldAgainByASuccessor(t *testing.T) {
	web := service("web", 1, enginetest.TCPPort(proxytest.FreePort(t)))
	first, k := newTelling(t, 1)
	next, nextKeeper := newTelling(t, 1)
	first.OnUpdate(batchOf(web))
	k.keeps = func() { succeed(t, first, next, batchOf(web)) }
	k.fails = func() bool { return true }
	if err := first.tellKeeper(); err == nil {
		t.Fatal("the manager has heard of the socket")
	}
	if err := next.tellKeeper(); err != nil || nextKeeper.tried != 1 || !nextKeeper.kept[web.Ports[0].ID()] {
		t.Errorf("the successor has told the manager %d times, %v, and takes %v for kept", nextKeeper.tried, err, nextKeeper.kept)
	}
}

// TestASuccessorForgetsTheSocketOfAPortThatHasJustClosed, of which its predecessor has not told the service manager: that one would keep it for
// good, in the place of another. So does the successor of a successor that has told it nothing either.
func TestASuccessorForgetsTheSocketOfAPortThatHasJustClosed(t *testing.T) {
	for name, tt := range map[string]struct{ reopens, claims bool }{
		"for good": {}, "and opened again": {reopens: true, claims: true}, "and opens in the successor": {claims: true},
	} {
		t.Run(name, func(t *testing.T) {
			const room = 2
			stays, goes := service("stays", 1, enginetest.TCPPort(proxytest.FreePort(t))), service("goes", 1, enginetest.TCPPort(proxytest.FreePort(t)))
			late := service("late", 1, enginetest.TCPPort(proxytest.FreePort(t)))
			gone := goes.Ports[0].ID()
			first, k := newTelling(t, room)
			first.OnUpdate(batchOf(stays, goes))
			if err := first.tellKeeper(); err != nil {
				t.Fatal(err)
			}
			first.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{goes.Name: nil}})
			if tt.reopens {
				first.OnUpdate(batchOf(goes))
			}
			now := []*registry.Service{stays, late}
			if tt.claims {
				now[1] = goes
			}
			next, _ := newTelling(t, room)
			succeed(t, first, next, batchOf(now...))
			third, thirdKeeper := newTelling(t, room)
			thirdKeeper.kept = maps.Clone(k.kept) // the service manager is one
			succeed(t, next, third, batchOf(now...))
			if err := third.tellKeeper(); err != nil {
				t.Fatal(err)
			}
			if !slices.Contains(thirdKeeper.forgot, gone) {
				t.Errorf("%v is not forgotten, only %v", gone, thirdKeeper.forgot)
			}
			if slices.Contains(thirdKeeper.forgot, stays.Ports[0].ID()) {
				t.Error("a socket that is open and kept is forgotten, too")
			}
			for _, s := range now {
				if !thirdKeeper.kept[s.Ports[0].ID()] {
					t.Errorf("%v is not kept, only %v", s.Ports[0].ID(), thirdKeeper.kept)
				}
			}
		})
	}
}

// TestAPortOpensAtOnceThoughAKeptSocketHasItAtAnotherAddress: its service moved, or went, while there was no process. Our own socket is not
// another program's.
func TestAPortOpensAtOnceThoughAKeptSocketHasItAtAnotherAddress(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	for name, batch := range map[string]func(...*registry.Service) registry.Batch{"each source has been read": batchOf, "one has not": partialOf} {
		t.Run(name, func(t *testing.T) {
			atNode := enginetest.TCPPort(proxytest.FreePort(t))
			atAddress := atNode
			atAddress.Addr = netip.MustParseAddr("127.0.0.2")
			for _, c := range []struct{ kept, claimed registry.ListenerID }{{atNode, atAddress}, {atAddress, atNode}} {
				p, _, stop := newRunning(t, Config{})
				inherit(t, p, c.kept)
				p.OnUpdate(batch(serviceAt("web", c.claimed)))
				if err := whyClosed(p, c.claimed); err != nil {
					t.Errorf("from %v to %v: %v", c.kept, c.claimed, err)
				}
				wantListening(t, "at once", c.claimed, true)
				stop()
			}
		})
	}
}

// TestBothAddressesOfAPortOpenThoughOneWasKept: the kept socket is claimed, and is not closed for the other one.
func TestBothAddressesOfAPortOpenThoughOneWasKept(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	atNode := enginetest.TCPPort(proxytest.FreePort(t))
	atAddress := atNode
	atAddress.Addr = netip.MustParseAddr("127.0.0.2")
	for _, kept := range []registry.ListenerID{atNode, atAddress} {
		p, _, stop := newRunning(t, Config{})
		inherit(t, p, kept)
		client := proxytest.TalkTo(t, netip.AddrPortFrom(atAddress.Addr, atAddress.Number)) // waits in the queue of either
		p.OnUpdate(batchOf(serviceAt("node", atNode), serviceAt("address", atAddress)))
		for _, id := range []registry.ListenerID{atNode, atAddress} {
			if err := whyClosed(p, id); err != nil {
				t.Errorf("%v was kept; %v: %v", kept, id, err)
			}
		}
		client.Conn.Close()
		stop()
	}
}

// TestAPortThatMovesDuringATakeOverOpensOnceThePredecessorHasGone: what the predecessor still has is not another program's.
func TestAPortThatMovesDuringATakeOverOpensOnceThePredecessorHasGone(t *testing.T) {
	proxytest.NeedsAddresses(t, "127.0.0.2")
	atNode := enginetest.TCPPort(proxytest.FreePort(t))
	atAddress := atNode
	atAddress.Addr = netip.MustParseAddr("127.0.0.2")
	first, _, _ := newRunning(t, Config{})
	first.OnUpdate(batchOf(serviceAt("web", atAddress)))
	next, _, _ := newRunning(t, Config{HeldPortDelay: time.Hour})
	succeed(t, first, next, batchOf(serviceAt("web", atNode)))
	proxytest.Eventually(t, func() bool { return whyClosed(next, atNode) == nil }, "%v opens", atNode)
	wantListening(t, "after the take-over", atNode, true)
}

// TestASuccessorLeavesAPortToTheProgramThatHeldIt before the take-over, and may be about to listen again.
func TestASuccessorLeavesAPortToTheProgramThatHeldIt(t *testing.T) {
	port := enginetest.TCPPort(proxytest.FreePort(t))
	program, err := net.Listen("tcp", proxytest.On(port.Number).String())
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := newRunning(t, Config{HeldPortDelay: time.Hour})
	next, _, _ := newRunning(t, Config{HeldPortDelay: 100 * time.Millisecond, HeldPortProbePeriod: time.Hour})
	web := batchOf(service("web", 1, port))
	first.OnUpdate(web)
	program.Close()
	succeed(t, first, next, web)
	if err := whyClosed(next, port); err == nil || !strings.Contains(err.Error(), "another program has the port") {
		t.Errorf("%v; want that another program has the port", err)
	}
	third, _, _ := newRunning(t, Config{HeldPortDelay: 100 * time.Millisecond, HeldPortProbePeriod: 20 * time.Millisecond})
	succeed(t, next, third, web)
	proxytest.Eventually(t, func() bool { return whyClosed(third, port) == nil }, "%v opens once it has been free for a while", port)
}

// TestAKeptSocketWaitsThroughATakeOverThatFails: the engine goes on, and its service finds it.
func TestAKeptSocketWaitsThroughATakeOverThatFails(t *testing.T) {
	onEngines(t, func(t *testing.T, kind Kind) {
		kept := enginetest.TCPPort(proxytest.FreePort(t))
		p, _, _ := newRunning(t, Config{Engine: kind})
		inherit(t, p, kept)
		p.OnUpdate(partialOf())
		if _, err := p.Listeners(); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Freeze(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.Thaw()
		wantListening(t, "after a take-over that failed", kept, true)
		p.OnUpdate(batchOf(service("web", 1, kept)))
		if err := whyClosed(p, kept); err != nil {
			t.Errorf("closed: %v", err)
		}
	})
}

// TestAKeptSocketHasItsShareOfTheLocalRange: a service of a source that is read earlier cannot take it.
func TestAKeptSocketHasItsShareOfTheLocalRange(t *testing.T) {
	low, high := freePorts(t)
	p, _, _ := newRunning(t, Config{})
	hasRoomForOne(p, low, high)
	inherit(t, p, high)
	p.OnUpdate(partialOf())
	p.OnUpdate(partialOf(service("new", 1, low)))
	if err := whyClosed(p, low); err == nil {
		t.Error("a new service has a port, though there is room for one, and it waits for its service")
	}
	p.OnUpdate(batchOf(service("new", 1, low), service("old", 2, high)))
	if err := whyClosed(p, high); err != nil {
		t.Errorf("the port that was open is closed: %v", err)
	}
}

// TestAKeptSocketWaitsThoughAnotherAddressOfItsPortCannotBeHad: only a port that is in use makes it go.
func TestAKeptSocketWaitsThoughAnotherAddressOfItsPortCannotBeHad(t *testing.T) {
	kept := enginetest.TCPPort(proxytest.FreePort(t))
	p, _, _ := newRunning(t, Config{})
	inherit(t, p, kept)
	elsewhere := kept
	elsewhere.Addr = netip.MustParseAddr("192.0.2.77")
	p.OnUpdate(partialOf(serviceAt("web", elsewhere)))
	if err := whyClosed(p, elsewhere); err == nil {
		t.Error("the node has an address that it has not")
	}
	wantListening(t, "the port of the node", kept, true)
}
