package datagrams

import (
	"testing"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/reactor"
	"kubeproxy/proxy/proxytest"
)

// A loop is an event loop that carries datagrams, and nothing else.
type loop struct {
	engine.Base
	turn     reactor.Turn
	poller   *reactor.Poller
	requests reactor.Requests
	pauses   reactor.Pauses
	searches reactor.Searches
	sessions Sessions
	stops    bool // once there is nothing left to carry
}

// startLoop starts a loop, which ends with the test. All its ports have to be closed by then.
func startLoop(t testing.TB, cfg engine.Config) *loop {
	t.Helper()
	cfg.BindAddress = proxytest.Loopback
	l := new(loop)
	l.Init(cfg.WithDefaults(), admit.NewOwnPorts(cfg.BindAddress))
	var err error
	l.poller, err = reactor.NewPoller(true)
	enginetest.Must(t, err)
	l.turn.Clock = monotonic.Now
	l.requests.Poller = l.poller
	l.pauses = reactor.Pauses{Poller: l.poller, Turn: &l.turn}
	l.searches = reactor.Searches{Engine: &l.Base, Turn: &l.turn, Requests: &l.requests}
	l.sessions = Sessions{Engine: &l.Base, Turn: &l.turn, Poller: l.poller, Requests: &l.requests, Pauses: &l.pauses, Searches: &l.searches,
		Asking: 1, Answering: 2}
	l.Work.Go(l.run)
	t.Cleanup(func() {
		l.requests.Do(func() { l.stops = true })
		l.Cut()
		l.Work.Wait()
		l.Resolver.Close()
	})
	return l
}

func (l *loop) run() {
	defer l.poller.Close()
	for {
		if l.searches.Waiting() > 0 || l.requests.Left() {
			l.poller.Poll()
		} else {
			l.poller.Wait(l.turn.Now, min(l.sessions.Due(), l.pauses.Due()))
		}
		l.turn.Begin()
		l.sessions.BeginTurn()
		events := l.poller.Events()
		for i := range events {
			switch token := reactor.TokenOf(&events[i]); token.Kind {
			case reactor.Waker:
				l.poller.Drain()
			case l.sessions.Asking:
				l.sessions.Asked(token)
			case l.sessions.Answering:
				l.sessions.Answered(token)
			}
		}
		for token := range l.searches.Due {
			l.sessions.Search(token)
		}
		l.sessions.SendReplies()
		l.sessions.Sweep()
		l.pauses.Resume()
		l.requests.Meet(&l.turn)
		if l.stops && l.sessions.AreNone() && l.requests.Close() {
			return
		}
	}
}
