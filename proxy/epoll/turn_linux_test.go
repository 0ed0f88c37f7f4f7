package epoll

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/pipes"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
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

// However many connections were interrupted, a turn goes on with some of them, and with the others before those again.
func TestATurnGoesOnWithSomeOfThoseInterrupted(t *testing.T) {
	l := bareLoop(engine.Config{}, 0)
	const room = backlogATurn
	conns := make([]conn, 3*room)
	for i := range conns { // they are not live, so going on does nothing
		l.backlog.interrupt(&conns[i])
	}
	for turn := 1; turn <= 3; turn++ {
		l.relays.proceed()
		l.backlog.interrupt(&conns[turn-1])
		for i := range conns {
			if went := i < turn*room; !went && !conns[i].queued {
				t.Fatalf("after %d turns connection %d has gone on", turn, i)
			}
		}
		if want := len(conns) - turn*room + turn; len(l.backlog.unfinished) != want {
			t.Fatalf("after %d turns %d are left; want %d", turn, len(l.backlog.unfinished), want)
		}
	}
	for i, c := range l.backlog.unfinished {
		if c != &conns[i] {
			t.Errorf("the one interrupted as number %d is not in its place", i)
		}
	}
}

// Once a turn has used up its time, each queue still moves on, by the minimum.
func TestALateTurnDoesTheMinimumOfEachPart(t *testing.T) {
	const waiting = 4 * reactor.LeastATurn
	l := bareLoop(engine.Config{}, time.Hour+reactor.TurnTime)
	var err error
	l.requests.Poller, err = reactor.NewPoller()
	enginetest.Must(t, err)
	defer l.requests.Poller.Close()
	interrupted, due := make([]conn, waiting), make([]conn, waiting)
	requests := 0
	for i := range waiting {
		l.backlog.interrupt(&interrupted[i])
		due[i].client.fd, due[i].backend.fd = socket.None, socket.None
		l.conns.enter(&due[i], young)
		l.requests.Do(func() { requests++ })
	}
	l.turn.Now = time.Hour
	l.relays.proceed()
	l.expire()
	l.meetRequests()
	looks := 0
	for i := range due {
		if due[i].phase != young {
			looks++
		}
	}
	if went := waiting - len(l.backlog.unfinished); went != reactor.LeastATurn || looks != reactor.LeastATurn || requests != reactor.LeastATurn {
		t.Errorf("a late turn went on with %d connections, looked at %d and met %d requests; want %d each", went, looks, requests, reactor.LeastATurn)
	}
	if len(l.backlog.unfinished) == 0 || l.backlog.unfinished[0] != &interrupted[reactor.LeastATurn] {
		t.Error("the connections that are left are not in their order")
	}
}

// A connection that says little is served in a turn whose time is used up. One that carries in bulk goes on in a later turn, and
// nothing that the kernel has told of it is lost.
func TestALateTurnServesSmallExchangesBeforeBulk(t *testing.T) {
	l, addr := newEpollPort(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	exchange := func(client net.Conn) {
		t.Helper()
		_, err := client.Write([]byte("hello"))
		enginetest.Must(t, err)
		if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	bulk := proxytest.Dial(t, netip.MustParseAddrPort(addr))
	exchange(bulk)
	little := proxytest.Dial(t, netip.MustParseAddrPort(addr))
	exchange(little)
	var wrote [2]error
	l.requests.Call(func() {
		var conns []*conn // in the order of their clients
		for c := range l.conns.All {
			conns = append(conns, c)
		}
		_, wrote[0] = bulk.Write([]byte("hello"))
		_, wrote[1] = little.Write([]byte("hello"))
		conns[0].client.full = 1 // as if it had just filled the buffer
		l.poller.Poll()
		l.turn.Clock = func() time.Duration { return l.turn.Now + reactor.TurnTime }
		l.dealWithAll()
		l.turn.Clock = monotonic.Now
		if sent := conns[1].backend.sent; sent != 10 {
			t.Errorf("the endpoint was sent %d bytes of the small exchange; want 10", sent)
		}
		if c := conns[0]; c.backend.sent != 5 || !c.client.readable || !c.queued {
			t.Errorf("bulk in a late turn: %d bytes sent, readable %v, queued %v; want 5, true, true", c.backend.sent, c.client.readable, c.queued)
		}
	})
	enginetest.Must(t, wrote[0])
	enginetest.Must(t, wrote[1])
	for _, client := range []net.Conn{bulk, little} {
		if _, err := io.ReadFull(client, make([]byte, 5)); err != nil {
			t.Error(err)
		}
	}
}

// When time is up for all connections they are cut a few at a time.
func TestConnectionsAreCutAFewInATurn(t *testing.T) {
	e, addr := newEpollPortOf(t, 1, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	l := e.loops[0]
	const clients = 3 * reactor.PlacesAStep
	for range clients {
		proxytest.Dial(t, netip.MustParseAddrPort(addr))
	}
	proxytest.Eventually(t, func() bool { return l.conns.load.Load() == clients }, "every client is accepted")
	ended := make(map[uint64]int)
	l.requests.Call(func() {
		l.conns.engine.Cfg.Ended = func(traffic.Ending) { ended[l.turn.Number]++ }
		l.endAll(0)
	})
	proxytest.Eventually(t, func() bool { return l.conns.load.Load() == 0 }, "every connection is cut")
	l.requests.Call(func() {
		for turn, n := range ended {
			if n > reactor.PlacesAStep {
				t.Errorf("turn %d cut %d connections; want %d at most", turn, n, reactor.PlacesAStep)
			}
		}
	})
}

// Readers that read nothing hold no pipes, so that bulk elsewhere goes on through these.
func TestStalledReadersHoldNoPipes(t *testing.T) {
	l, addr := newEpollPort(t, func(conn *net.TCPConn) {
		for data := make([]byte, 1<<20); ; {
			if _, err := conn.Write(data); err != nil {
				return
			}
		}
	})
	const readers = pipes.Most + 8
	for range readers {
		proxytest.DialNarrow(t, netip.MustParseAddrPort(addr), 16<<10)
	}
	stalled := func() (n int) {
		l.requests.Call(func() {
			for c := range l.conns.All {
				if c.client.stalled() {
					n++
				}
			}
		})
		return n
	}
	proxytest.Eventually(t, func() bool { return stalled() == readers }, "every reader is stalled")
	l.requests.Call(func() {
		made, held := l.relays.pipes.Made()
		if made == 0 {
			t.Error("nothing went through a pipe")
		}
		if held != 0 {
			t.Errorf("%d pipes are held by stalled readers", held)
		}
	})
}

// Little that is left in a pipe when its side stalls is held in memory, and arrives in its place.
func TestWhatIsLeftInAPipeIsReadBack(t *testing.T) {
	r := &relays{pipes: pipes.Pool{Budget: admit.NewBudget(1000)}}
	p := r.pipes.Take()
	defer r.pipes.Close()
	want := bytes.Repeat([]byte("abcdefgh"), 500)
	n, errno := socket.Write(p.W, want)
	if n != len(want) || errno != 0 {
		t.Fatal(n, errno)
	}
	p.N = n
	s := &side{bulk: p}
	r.empty(s)
	if _, lent := r.pipes.Made(); s.bulk != nil || s.held == nil || !bytes.Equal(s.held.rest, want) || lent != 0 {
		t.Errorf("the side holds %+v, and %d pipes are lent", s, lent)
	}
}

// That the kernel lacks memory is no word of the peer: the connection goes on when there is some again.
func TestAConnectionOutlivesALackOfMemory(t *testing.T) {
	for _, errno := range []unix.Errno{unix.ENOMEM, unix.ENOBUFS} {
		t.Run(errno.Error(), func(t *testing.T) {
			l, addr := newEpollPort(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
			client := proxytest.Dial(t, netip.MustParseAddrPort(addr))
			say := func(what string) {
				t.Helper()
				_, err := client.Write([]byte(what))
				enginetest.Must(t, err)
				got := make([]byte, len(what))
				if _, err := io.ReadFull(client, got); err != nil || string(got) != what {
					t.Fatalf("%q, %v", got, err)
				}
			}
			say("hello")
			said := make(chan error)
			l.requests.Call(func() {
				for c := range l.conns.All {
					c.client.readable = true
					l.relays.unread(c, &c.backend, &c.client, errno) // as if a read had failed
					c.backend.held = l.relays.tail([]byte("held "))  // as send does when a write has
					l.backlog.starve(c)
				}
			})
			go func() {
				got := make([]byte, len("held "))
				_, err := io.ReadFull(client, got)
				if err == nil && string(got) != "held " {
					err = fmt.Errorf("got %q", got)
				}
				said <- err
			}()
			if err := proxytest.Receive(t, said, "what was held"); err != nil {
				t.Fatal(err)
			}
			say("still here")
		})
	}
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
