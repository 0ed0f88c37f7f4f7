package epoll

import (
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/relay"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// These tests hold each part of a turn to its budget.

// Those who ask a loop for more while it does what they asked for do not keep it from its clients.
func TestARequestThatAsksForMoreWaitsForTheNextTurn(t *testing.T) {
	l, addr := newEpollPort(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	stop := make(chan struct{})
	var again func()
	again = func() {
		if !isClosedChannel(stop) {
			l.requests.Do(again)
		}
	}
	l.requests.Do(again)
	defer close(stop)
	client := proxytest.Dial(t, netip.MustParseAddrPort(addr))
	_, err := client.Write([]byte("hello"))
	enginetest.Must(t, err)
	if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
		t.Errorf("a client beside someone who always asks for more got no answer: %v", err)
	}
}

func isClosedChannel(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// bareLoop returns a loop that has no descriptors, and whose clock stands still.
func bareLoop(cfg engine.Config, now time.Duration) *loop {
	l := assemble(&loop{draining: new(atomic.Bool)}, &engine.Base{Cfg: cfg})
	l.turn = reactor.Turn{Clock: func() time.Duration { return now }}
	return l
}

// What others ask for is done in order, and no more of it in a turn than there is room for.
func TestATurnDoesAFewRequestsInOrder(t *testing.T) {
	l, _ := newEpollPort(t, func(*net.TCPConn) {})
	const requests = 10 * reactor.RequestsATurn
	var turns []uint64
	var order []int
	l.requests.Call(func() {
		for i := range requests {
			l.requests.Do(func() { turns, order = append(turns, l.turn.Number), append(order, i) })
		}
	})
	proxytest.Eventually(t, func() bool {
		n := 0
		l.requests.Call(func() { n = len(order) })
		return n == requests
	}, "every request is met")
	l.requests.Call(func() {
		if !slices.IsSorted(order) {
			t.Error("requests were met out of order")
		}
		in := make(map[uint64]int)
		for _, turn := range turns {
			if in[turn]++; in[turn] > reactor.RequestsATurn {
				t.Errorf("turn %d met more than %d requests", turn, reactor.RequestsATurn)
				return
			}
		}
	})
}

// Of many ports with clients each accepts one at least, and all of them no more than a turn has room for.
func TestManyPortsShareTheAcceptsOfATurn(t *testing.T) {
	for ports := range 257 {
		each := acceptsFor(ports)
		if each < 1 || each > acceptsAtOnce || each > 1 && ports*each > acceptsATurn {
			t.Errorf("each of %d ports accepts %d clients", ports, each)
		}
	}
}

// Once a turn has used up its time, each queue still moves on, by the minimum.
func TestALateTurnDoesTheMinimumOfEachPart(t *testing.T) {
	const waiting = 4 * reactor.LeastATurn
	l := bareLoop(engine.Config{}, time.Hour+reactor.TurnTime)
	var err error
	l.requests.Poller, err = reactor.NewPoller(true)
	enginetest.Must(t, err)
	defer l.requests.Poller.Close()
	requests := 0
	for range waiting {
		l.relays.Postpone(l.conns.Begin(socket.None, nil, tcp.Connection{Claim: &engine.Claim{Terms: registry.NoTerms}}), relay.ClientSide, 0)
		l.conns.Enter(l.conns.Begin(socket.None, nil, tcp.Connection{Claim: &engine.Claim{Terms: registry.NoTerms}}), relay.Young)
		l.requests.Do(func() { requests++ })
	}
	l.turn.Now = time.Hour
	l.relays.Proceed()
	l.expire()
	l.meetRequests()
	looks := waiting
	for c := range l.conns.All {
		if c.Phase() == relay.Young {
			looks--
		}
	}
	if went := waiting - l.backlog.Waiting(); went != reactor.LeastATurn || looks != reactor.LeastATurn || requests != reactor.LeastATurn {
		t.Errorf("a late turn went on with %d connections, looked at %d and met %d requests; want %d each", went, looks, requests, reactor.LeastATurn)
	}
}

// A connection that says little is served in a turn whose time is used up. One that carries in bulk goes on in a later turn.
func TestALateTurnServesSmallExchangesBeforeBulk(t *testing.T) {
	l, addr := newEpollPort(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	answered := func(client net.Conn, bytes int) {
		t.Helper()
		if _, err := io.ReadFull(client, make([]byte, bytes)); err != nil {
			t.Fatal(err)
		}
	}
	hello := []byte("hello")
	dial := func() net.Conn {
		client := proxytest.Dial(t, netip.MustParseAddrPort(addr))
		_, err := client.Write(hello)
		enginetest.Must(t, err)
		answered(client, len(hello))
		return client
	}
	bulk, little := dial(), dial()
	const much = 32 << 10 // twice what is read at a time
	var wrote [3]error
	l.requests.Call(func() {
		var toEndpoint *atomic.Uint64 // bytes of all connections
		for c := range l.conns.All {
			toEndpoint = &c.Account.Claim.Tally.Sent
		}
		l.turn.Clock = func() time.Duration { return l.turn.Now + reactor.TurnTime }
		defer func() { l.turn.Clock = monotonic.Now }()
		turn := func() (sent int) {
			before := toEndpoint.Load()
			l.poller.Poll()
			l.dealWithAll()
			return int(toEndpoint.Load() - before)
		}
		_, wrote[0] = bulk.Write(make([]byte, much))
		if sent := turn(); sent == 0 || sent == much || l.backlog.Waiting() != 1 {
			t.Errorf("a late turn sent %d of %d bytes, and %d connections wait; want a part, and 1", sent, much, l.backlog.Waiting())
		}
		_, wrote[1] = bulk.Write(hello)
		_, wrote[2] = little.Write(hello)
		if sent := turn(); sent != len(hello) || l.backlog.Waiting() != 1 {
			t.Errorf("the next one sent %d bytes, and %d connections wait; want the %d of the small exchange, and 1", sent, l.backlog.Waiting(), len(hello))
		}
	})
	for _, err := range wrote {
		enginetest.Must(t, err)
	}
	answered(bulk, much+len(hello))
	answered(little, len(hello))
}

// When time is up for all connections they are cut a few at a time.
func TestConnectionsAreCutAFewInATurn(t *testing.T) {
	e, addr := newEpollPortOf(t, 1, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	l := e.loops[0]
	const clients = 3 * reactor.PlacesAStep
	for range clients {
		proxytest.Dial(t, netip.MustParseAddrPort(addr))
	}
	proxytest.Eventually(t, func() bool { return l.conns.Assigned.Load() == clients }, "every client is accepted")
	ended := make(map[uint64]int)
	l.requests.Call(func() {
		e.Cfg.Ended = func(traffic.Ending) { ended[l.turn.Number]++ }
		l.endAll(0)
	})
	proxytest.Eventually(t, func() bool { return l.conns.Assigned.Load() == 0 }, "every connection is cut")
	l.requests.Call(func() {
		for turn, n := range ended {
			if n > reactor.PlacesAStep {
				t.Errorf("turn %d cut %d connections; want %d at most", turn, n, reactor.PlacesAStep)
			}
		}
	})
}

// A port whose socket cannot be watched again is not ignored for ever.
func TestAPortThatCannotBeWatchedAgainIsTriedAgain(t *testing.T) {
	e, addr := newEpollPortOf(t, 1, proxytest.Identify("a"))
	l := e.loops[0]
	var p *epollTCP
	l.requests.Call(func() {
		for each := range l.listeners.all.All {
			p = *each
		}
		l.pauses.Suspend(&p.Watched)
		fd := p.FD
		p.FD = -1 // EBADF
		l.turn.Now += engine.LastPause
		l.pauses.Resume()
		if p.FD = fd; l.pauses.Due() == monotonic.Never {
			t.Error("the port is forgotten")
		}
	})
	proxytest.WhoAnswers(t, netip.MustParseAddrPort(addr))
}

// A loop that stands still is named, one that is idle or ended is not, and a loop that turns again is well.
func TestALoopThatStandsStillIsFound(t *testing.T) {
	e, addr := newEpollPortOf(t, 2, proxytest.Identify("a"))
	wants := func(when, want string) {
		t.Helper()
		if err := e.Stalled(); err == nil && want != "" || err != nil && (want == "" || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v; want %q", when, err, want)
		}
	}
	beats := func(n int) {
		for range n {
			for _, l := range e.loops {
				l.heartbeat.Beat(&l.requests)
			}
		}
	}
	answered := func(l *loop) {
		t.Helper()
		if !l.requests.Call(func() {}) {
			t.Fatal("the loop has ended")
		}
	}
	for range 2 * reactor.BeatsLost {
		beats(1)
		answered(e.loops[0])
		answered(e.loops[1])
	}
	wants("idle", "")
	gate, stands := make(chan struct{}), make(chan struct{})
	e.loops[1].requests.Do(func() { close(stands); <-gate })
	proxytest.Receive(t, stands, "the loop to stand still")
	beats(2) // as after a stop of the whole process, however long: two looks prove nothing
	wants("at once", "")
	for range reactor.BeatsLost {
		beats(1)
		answered(e.loops[0])
	}
	wants("after ten looks", "event loop 1 stands still: its present turn has lasted")
	if longest := e.TurnTimes().Longest; longest <= 0 {
		t.Errorf("the longest turn has lasted %v", longest)
	}
	close(gate)
	answered(e.loops[1])
	beats(1)
	wants("when it turns again", "")
	proxytest.WhoAnswers(t, netip.MustParseAddrPort(addr))
}

// A loop that has ended is asked no more, and does not stand still.
func TestALoopThatHasEndedDoesNotStandStill(t *testing.T) {
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	s, err := e.Listen(enginetest.TCPPort(proxytest.FreePort(t)), enginetest.OwnerOf(enginetest.NewRotation()))
	enginetest.Must(t, err)
	s.Close()
	e.Drain(t.Context())
	for range 2 * reactor.BeatsLost {
		e.loops[0].heartbeat.Beat(&e.loops[0].requests)
	}
	if err := e.Stalled(); err != nil {
		t.Error(err)
	}
}

// The turns of a loop are counted.
func TestTurnsAreCounted(t *testing.T) {
	e, addr := newEpollPortOf(t, 1, proxytest.Identify("a"))
	proxytest.WhoAnswers(t, netip.MustParseAddrPort(addr))
	turns := uint64(0)
	for _, n := range e.TurnTimes().Buckets {
		turns += n
	}
	if turns == 0 {
		t.Error("a loop has served a client, and no turn is counted")
	}
}
