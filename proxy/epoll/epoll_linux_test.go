package epoll

import (
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// newEpollPort opens a port of an epoll engine of one loop in front of one endpoint, and returns the loop.
func newEpollPort(t *testing.T, handle func(*net.TCPConn)) (*loop, string) {
	t.Helper()
	e, addr := newEpollPortOf(t, 1, handle)
	return e.loops[0], addr
}

func newEpollPortOf(t *testing.T, loops int, handle func(*net.TCPConn)) (*Engine, string) {
	t.Helper()
	proxytest.NothingLeaks(t)
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	e.loopCount = loops
	return e, openEpollPort(t, e, handle)
}

func openEpollPort(t *testing.T, e *Engine, handle func(*net.TCPConn)) string {
	t.Helper()
	to := proxytest.ServeTCP(t, "127.0.0.1:0", handle).Addr
	port := proxytest.FreePort(t)
	s, err := e.Listen(enginetest.TCPPort(port), enginetest.OwnerOf(enginetest.NewRotation(to)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		e.Drain(t.Context())
	})
	return proxytest.On(port).String()
}

// A port pauses for a client that has to wait for descriptors, and not because the last one took them.
func TestTheClientThatTakesTheLastDescriptorsPausesNothing(t *testing.T) {
	proxytest.NothingLeaks(t)
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	e.Budget = admit.NewBudget(6) // of which a listener may have one, and a client two: one is left
	addr := openEpollPort(t, e, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if n := e.Pauses.Load(); n != 0 || e.Budget.Used.Load() != 3 {
		t.Errorf("%d pauses, %d descriptors in use; want none, 3", n, e.Budget.Used.Load())
	}
}

// The clients of one port are shared out among all loops, and each is served and ended where it is.
func TestLoopsShareTheClientsOfAPort(t *testing.T) {
	e, addr := newEpollPortOf(t, 3, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	loads := func() []int64 { return loadsOf(e) }
	var clients []net.Conn
	for range 30 {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		clients = append(clients, conn)
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	if got := loads(); slices.Min(got) < slices.Max(got)-slack-1 {
		t.Errorf("the loops have %v connections", got)
	}
	for _, conn := range clients {
		conn.Close()
	}
	proxytest.Eventually(t, func() bool { return slices.Max(loads()) == 0 }, "every connection ends")
}

// A loop that is handed a client has one more from then on, not from its next turn. Else a burst would all go to one
// that happens to be busy.
func TestClientsCountForALoopBeforeItHasSeenThem(t *testing.T) {
	e, addr := newEpollPortOf(t, 3, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	gate := make(chan struct{})
	defer close(gate)
	for _, l := range e.loops[1:] { // the first has the port
		l.requests.Do(func() { <-gate })
	}
	const clients = 30
	for range clients {
		conn, err := net.Dial("tcp", addr)
		enginetest.Must(t, err)
		defer conn.Close()
	}
	proxytest.Eventually(t, func() bool {
		sum := int64(0)
		for _, n := range loadsOf(e) {
			sum += n
		}
		return sum == clients
	}, "every client counts for a loop")
	if got := loadsOf(e); slices.Max(got)-slices.Min(got) > slack+1 {
		t.Errorf("the loops have %v connections", got)
	}
}

func loadsOf(e *Engine) (loads []int64) {
	for _, l := range e.loops {
		loads = append(loads, l.conns.Assigned.Load())
	}
	return loads
}

// However many clients come at once, those that a loop has already do not wait until all of them are accepted.
func TestAPortAcceptsAFewClientsATurn(t *testing.T) {
	l, addr := newEpollPort(t, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	const clients = 2*acceptsAtOnce + 4
	var conns []net.Conn
	var used []int
	var err error
	l.requests.Call(func() { // meanwhile no event is dealt with: the clients wait in the kernel's queue
		for range clients {
			var conn net.Conn
			if conn, err = net.Dial("tcp", addr); err != nil {
				return
			}
			conns = append(conns, conn)
		}
		l.turn.Clock = func() time.Duration { return l.turn.Now } // the turn takes no time
		for range 2 {
			for p := range l.listeners.all.All { // it is one
				l.listeners.accept(*p)
			}
			used = append(used, l.conns.Used())
		}
		l.turn.Clock = func() time.Duration { return l.turn.Now + reactor.TurnTime } // and now its time is used up
		for p := range l.listeners.all.All {
			l.listeners.accept(*p)
		}
		used = append(used, l.conns.Used())
		l.turn.Clock = monotonic.Now
	})
	for _, conn := range conns {
		defer conn.Close()
	}
	enginetest.Must(t, err)
	if want := []int{acceptsAtOnce, 2 * acceptsAtOnce, 2*acceptsAtOnce + 1}; !slices.Equal(used, want) {
		t.Errorf("connections after each turn: %v; want %v", used, want)
	}
	proxytest.Eventually(t, func() bool { return l.conns.Assigned.Load() == clients }, "the rest is accepted in the turns after that")
}

// Bytes in bulk go through a pipe, small amounts do not take one; and what a pipe takes of the budget is
// given back with it.
func TestBulkTakesAPipeAndLittleDoesNot(t *testing.T) {
	e, addr := newEpollPortOf(t, 1, func(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) })
	l := e.loops[0]
	pipes := func() (made int) {
		l.requests.Call(func() { made, _ = l.relays.Pipes.Made() })
		return made
	}
	echo := func(size int) {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		question, answer := make([]byte, size), make([]byte, size)
		_, _ = rand.Read(question)
		go func() { _, _ = conn.Write(question) }()
		if _, err := io.ReadFull(conn, answer); err != nil || string(answer) != string(question) {
			t.Fatalf("%d bytes did not come back as they went: %v", size, err)
		}
	}
	echo(1000)
	if n := pipes(); n != 0 {
		t.Errorf("%d pipes after a thousand bytes", n)
	}
	echo(8 << 20)
	if n := pipes(); n == 0 || n > 2 {
		t.Errorf("%d pipes after 8 MiB each way; want one or two", n)
	}
	proxytest.Eventually(t, func() bool { return lentPipes(l) == 0 }, "every pipe is given back")
	proxytest.Eventually(t, func() bool { return e.Budget.Used.Load() == int64(1+2*pipes()) }, "only the port's and the pipes' descriptors are counted")
}

func lentPipes(l *loop) (lent int) {
	l.requests.Call(func() { _, lent = l.relays.Pipes.Made() })
	return lent
}

// Others may ask a loop for something when it has ended. They are told, and its descriptors are left alone:
// these may be others' by then.
func TestALoopThatHasEndedIsAskedForNothing(t *testing.T) {
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	s, err := e.Listen(enginetest.TCPPort(proxytest.FreePort(t)), enginetest.OwnerOf(enginetest.NewRotation()))
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	e.Drain(t.Context())
	asked := false
	if e.loops[0].requests.Do(func() { asked = true }) || e.loops[0].requests.Call(func() { asked = true }) || asked {
		t.Error("a loop that has ended was asked, or says that it does what it is asked")
	}
}

// The kernel may refuse to watch a socket (epoll_ctl(2), ENOSPC). Here it is a file by then.
func TestAPortThatItsLoopCannotWatchIsClosed(t *testing.T) {
	proxytest.NothingLeaks(t)
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	e.loopCount = 1
	stays, err := e.Listen(enginetest.TCPPort(proxytest.FreePort(t)), enginetest.OwnerOf(enginetest.NewRotation()))
	enginetest.Must(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	enginetest.Must(t, err)
	defer file.Close()
	for _, id := range []registry.ListenerID{enginetest.TCPPort(proxytest.FreePort(t)), enginetest.UDPPort(proxytest.FreePort(t))} {
		holds, goOn := make(chan struct{}), make(chan struct{})
		go e.loops[0].requests.Call(func() { close(holds); <-goOn })
		<-holds
		s, err := e.Listen(id, enginetest.OwnerOf(enginetest.NewRotation()))
		enginetest.Must(t, err)
		fd, err := s.Descriptor()
		enginetest.Must(t, err)
		enginetest.Must(t, unix.Dup3(int(file.Fd()), fd, unix.O_CLOEXEC))
		close(goOn)
		if err := s.Ready(); !errors.Is(err, unix.EPERM) {
			t.Errorf("%s: %v", id, err)
		}
		again, err := e.Listen(id, enginetest.OwnerOf(enginetest.NewRotation()))
		enginetest.Must(t, err)
		enginetest.Must(t, again.Ready())
		again.Close()
	}
	stays.Close()
	e.Drain(t.Context())
}

// A port may close while its clients wait for descriptors. Its own is another's by the time that it would
// be watched again.
func TestAPortThatClosesWhileItIsPausedIsNotWatchedAgain(t *testing.T) {
	proxytest.NothingLeaks(t)
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	e.loopCount = 1
	stays, err := e.Listen(enginetest.TCPPort(proxytest.FreePort(t)), enginetest.OwnerOf(enginetest.NewRotation()))
	enginetest.Must(t, err)
	goes, err := e.Listen(enginetest.TCPPort(proxytest.FreePort(t)), enginetest.OwnerOf(enginetest.NewRotation()))
	enginetest.Must(t, err)
	p := goes.(*epollTCP)
	l := e.loops[0]
	other, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	enginetest.Must(t, err)
	l.requests.Call(func() {
		l.listeners.pause(p)
		p.leave()
		if err = unix.Dup3(other, p.FD, unix.O_CLOEXEC); err != nil {
			return
		}
		l.turn.Now += time.Hour // when its pause is long over
		l.pauses.Resume()
		if err := l.poller.Watch(p.FD, p.Token, unix.EPOLLIN); err != nil {
			t.Errorf("the loop watches what has the descriptor now (%v)", err)
		}
	})
	enginetest.Must(t, err)
	e.Budget.ReleaseOfListener()
	unix.Close(other)
	unix.Close(p.FD)
	stays.Close()
	e.Drain(t.Context())
}

// A loop that always finds something to do lets the Go scheduler look around now and then: else no thread might, for
// up to 10 ms.
func TestALoopThatIsAlwaysBusyYieldsNowAndThen(t *testing.T) {
	l, _ := newEpollPort(t, func(*net.TCPConn) {})
	busy, err := unix.Eventfd(1, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK) // it is not read, so it is ready in each turn
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(busy)
	const nobody = 1<<reactor.GenerationBits - 1
	l.requests.Call(func() { err = l.poller.Watch(busy, reactor.Token{Kind: listening, Generation: nobody}, unix.EPOLLIN) })
	if err != nil {
		t.Fatal(err)
	}
	state := func() (turn uint64, yielded time.Duration) {
		l.requests.Call(func() { turn, yielded = l.turn.Number, l.yielded })
		return turn, yielded
	}
	began, last := state()
	for range 3 {
		proxytest.Eventually(t, func() bool {
			_, yielded := state()
			defer func() { last = yielded }()
			return yielded > last
		}, "it yields once more")
	}
	if ended, _ := state(); ended < began+100 {
		t.Errorf("only %d turns", ended-began)
	}
}

// A turn of a loop makes a bounded number of attempts that fail at once, however many clients search, and the
// searches go on in later turns.
func TestALoopMakesEightAttemptsATurnForSearchesThatGoOn(t *testing.T) {
	if !proxytest.InOwnNetwork(t) { // which has no route to anywhere
		return
	}
	proxytest.NothingLeaks(t)
	e := New(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	e.loopCount = 1
	list := make([]registry.Addr, 5000)
	for i := range list {
		list[i] = enginetest.Address(i)
	}
	r := enginetest.NewRotation(list...)
	port := proxytest.FreePort(t)
	s, err := e.Listen(enginetest.TCPPort(port), enginetest.OwnerOf(r))
	enginetest.Must(t, err)
	t.Cleanup(func() {
		s.Close()
		e.Drain(t.Context())
	})
	l, addr := e.loops[0], proxytest.On(port).String()
	failures := func() (n uint64) {
		for _, e := range r.Endpoints() {
			n += e.Status().Failures
		}
		return n
	}
	var conns []net.Conn
	var turn uint64
	l.requests.Call(func() { // as long as this lasts it is one turn
		turn = l.turn.Number
		for range acceptsAtOnce {
			conn, err := net.Dial("tcp", addr)
			if err != nil {
				t.Error(err)
				return
			}
			conns = append(conns, conn)
		}
		for p := range l.listeners.all.All { // it is one
			l.listeners.accept(*p)
		}
		if got, most := failures(), uint64(acceptsAtOnce+reactor.AttemptsATurn); got > most {
			t.Errorf("%d clients had %d attempts in one turn, want %d at most", acceptsAtOnce, got, most)
		}
		if l.searches.Waiting() == 0 || l.turn.Number != turn {
			t.Errorf("%d searches go on in a later turn", l.searches.Waiting())
		}
	})
	for _, conn := range conns {
		if _, err := conn.Read(make([]byte, 1)); !proxytest.IsReset(err) {
			t.Errorf("a client got %v, want a reset", err)
		}
		conn.Close()
	}
	if got, want := failures(), uint64(acceptsAtOnce*rotation.MaxOffers); got != want {
		t.Errorf("%d clients had %d attempts, want %d", acceptsAtOnce, got, want)
	}
	l.requests.Call(func() {
		if l.turn.Number < turn+acceptsAtOnce*(rotation.MaxOffers-1)/reactor.AttemptsATurn-1 || l.searches.Waiting() != 0 {
			t.Errorf("it took %d turns, and %d searches are left over", l.turn.Number-turn, l.searches.Waiting())
		}
	})
}
