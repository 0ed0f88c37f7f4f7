package relay

import (
	"net"
	"net/netip"
	"sync/atomic"
	"testing"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/epoll/socket"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
)

// A loop is an event loop that carries connections, and nothing else: each gets its endpoint at once.
type loop struct {
	engine.Base
	turn     reactor.Turn
	poller   *reactor.Poller
	requests reactor.Requests
	conns    Conns
	backlog  Backlog
	relays   Relays
	stops    bool

	addr     netip.AddrPort // that clients come to
	listener int
	owner    *atomic.Pointer[engine.Claim]
}

// startLoop starts a loop in front of one endpoint. It ends with the test.
func startLoop(t *testing.T, handle func(*net.TCPConn)) *loop {
	t.Helper()
	proxytest.NothingLeaks(t)
	l := &loop{addr: proxytest.On(proxytest.FreePort(t)), owner: enginetest.OwnerOf(enginetest.NewRotation(proxytest.ServeTCP(t, "127.0.0.1:0", handle).Addr))}
	l.Init(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	var err error
	l.listener, err = socket.ListenTCP(&l.Base, enginetest.TCPPort(l.addr.Port()))
	enginetest.Must(t, err)
	l.poller, err = reactor.NewPoller(true)
	enginetest.Must(t, err)
	l.begin(&l.Base)
	t.Cleanup(func() {
		l.requests.Do(func() { l.stops = true })
		l.Cut()
		l.Work.Wait()
		l.Resolver.Close()
	})
	return l
}

// begin begins to turn, as a loop of the engine that base is of.
func (l *loop) begin(base *engine.Base) {
	l.turn.Clock = monotonic.Now
	l.requests.Poller = l.poller
	l.conns.Init(base, &l.turn)
	l.backlog.Turn = &l.turn
	l.relays = Relays{Engine: base, Turn: &l.turn, Poller: l.poller, Requests: &l.requests, Conns: &l.conns, Backlog: &l.backlog, Pipes: Pipes{Budget: base.Budget}}
	base.Work.Go(l.run)
}

// beside starts another loop of the engine of l, which has no port. It ends with the test.
func (l *loop) beside(t *testing.T) *loop {
	t.Helper()
	another := &loop{listener: socket.None}
	var err error
	another.poller, err = reactor.NewPoller(true)
	enginetest.Must(t, err)
	another.begin(&l.Base)
	t.Cleanup(func() { another.requests.Do(func() { another.stops = true }) }) // before l
	return another
}

func (l *loop) run() {
	defer l.poller.Close()
	defer l.relays.Pipes.Close()
	defer socket.Close(l.listener)
	for {
		if l.backlog.Waiting() > 0 || l.requests.Left() {
			l.poller.Poll()
		} else {
			l.poller.Wait(l.turn.Now, min(l.conns.Due(), l.backlog.ResumesAt()))
		}
		l.turn.Begin()
		l.relays.Apportion()
		events := l.poller.Events()
		for i := range events {
			if t := reactor.TokenOf(&events[i]); t.Kind == reactor.Waker {
				l.poller.Drain()
			} else if c := l.conns.At(t.Index, t.Generation); c != nil {
				l.relays.OnEvent(c, t.Kind, events[i].Events)
			}
		}
		l.relays.Proceed()
		for c, isDue := l.conns.Next(); c != nil; c, isDue = l.conns.Next() {
			if isDue {
				l.relays.Look(c)
			}
		}
		l.backlog.Resume()
		l.requests.Meet(&l.turn)
		if l.stops && l.requests.Close() {
			for c := range l.conns.All {
				l.relays.End(c, traffic.Shutdown)
			}
			return
		}
	}
}

// dial connects a client that takes only so many bytes ahead of its reading, and has the loop carry it.
func (l *loop) dial(t *testing.T, buffer int) *net.TCPConn {
	t.Helper()
	client := proxytest.DialNarrow(t, l.addr, buffer)
	l.requests.Call(func() {
		fd, from, errno := socket.Accept(l.listener)
		if errno != 0 {
			t.Error(errno)
			return
		}
		l.Budget.Take(2)
		account, _ := tcp.Admit(&l.Base, l.owner.Load(), l.addr.Port(), from)
		var race tcp.Race
		race.Begin(&tcp.RaceConfig{Limits: &l.Cfg, Resolver: l.Resolver}, account.Choose(), l.turn.Now)
		step := race.Next(l.turn.Now)
		backend, errno := socket.Connect(step.To)
		if errno != 0 {
			t.Error(errno)
		}
		account.Given(race.Connected(l.turn.Now, step.ID), nil)
		l.conns.Assigned.Add(1)
		l.relays.Begin(l.conns.Begin(fd, l.owner, account), int32(backend), 0)
	})
	return client
}

// only is the only connection of the loop. It is for requests of the loop to call.
func (l *loop) only() (c *Conn) {
	for c = range l.conns.All {
	}
	return c
}
