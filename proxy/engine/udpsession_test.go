package engine

import (
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A driven session is one whose engine is the test: it connects to nothing, and notes what it would send.
type driven struct {
	UDPSession
	f       *fixture
	visit   *UDPVisit // what the engine holds a socket for
	now     time.Duration
	refuse  map[registry.Addr]error // what connecting or sending to an endpoint ends in
	log     []string
	endings []traffic.Ending
}

// begin begins a session for a client of the fixture's service.
func (f *fixture) begin(t testing.TB) *driven {
	t.Helper()
	d := &driven{f: f, refuse: make(map[registry.Addr]error)}
	f.Cfg.Ended = func(e traffic.Ending) { d.endings = append(d.endings, e) }
	if !f.port.MayBegin(f.owner, aClient, func() bool { return false }) {
		t.Fatal("the client is refused")
	}
	if _, ok := f.port.Begin(&d.UDPSession, new(evicted), f.owner, aClient); !ok {
		t.Fatal("the session is refused")
	}
	return d
}

// note adds to the log.
func (d *driven) note(parts ...string) { d.log = append(d.log, strings.Join(parts, " ")) }

// names are the last bytes of addresses.
func nameOf(a registry.Addr) string { return a.IP.Addr().String()[len("10.0.0."):] }

// search finds an endpoint, as an engine does.
func (d *driven) search() {
	for d.visit == nil && !d.Ended() {
		e, ok := d.Next(d.now)
		if !ok {
			d.GiveUp()
			break
		}
		v := &UDPVisit{Endpoint: e, Began: d.now}
		if err := d.connect(v); err != nil {
			d.note(nameOf(e.Addr), "fails")
			d.Cannot(e, err)
			continue
		}
		d.visit = v
		d.Reached(v)
	}
	if d.Ended() {
		d.depart()
		d.note("ends:", d.reason.String())
		d.Finish()
	}
}

func (d *driven) connect(v *UDPVisit) error {
	for sent := 0; ; sent++ {
		next, verdict := d.HandOver(v, sent)
		if verdict == UDPDone {
			return d.refuse[v.Endpoint.Addr]
		}
		d.note(nameOf(v.Endpoint.Addr), "<-", string(next))
		if err := d.Sent(len(next), d.refuse[v.Endpoint.Addr]); err != nil {
			return err
		}
	}
}

func (d *driven) depart() {
	if d.visit != nil {
		d.Departed(d.visit, d.now)
		d.visit = nil
	}
}

// move leaves an endpoint for the next one.
func (d *driven) move(verdict UDPVerdict) {
	if verdict == UDPMove {
		d.depart()
		d.search()
	}
}

// say has the client send a datagram.
func (d *driven) say(datagram string) {
	verdict := d.Forward([]byte(datagram))
	if verdict == UDPSend {
		e := d.visit.Endpoint.Addr
		d.note(nameOf(e), "<-", datagram)
		if err := d.Sent(len(datagram), d.refuse[e]); err != nil {
			verdict = d.Refused(d.visit, err)
		}
	}
	d.move(verdict)
}

// hear has the endpoint answer.
func (d *driven) hear(answer string) {
	verdict := d.Answered(d.visit, len(answer))
	if verdict == UDPSend {
		d.note("client <-", answer)
		d.Delivered(len(answer), nil)
	}
	d.move(verdict)
}

// end ends the session from outside.
func (d *driven) end(why traffic.Reason) {
	d.End(why)
	d.search()
}

var errRefused = os.NewSyscallError("write", syscall.ECONNREFUSED)

type drops = map[traffic.DropReason]uint64

// Each case is the life of one session: what happens, what is sent to whom meanwhile, and what is counted of it.
func TestTheLifeOfAUDPSession(t *testing.T) {
	long, tooLong := strings.Repeat("l", MaxKept+1), strings.Repeat("t", MaxDatagram)
	for _, c := range []struct {
		name      string
		endpoints []registry.Addr
		do        func(d *driven)
		log       []string
		drops     drops
		moved     uint64
		failures  uint64 // dials that failed
		attempts  int
		endpoint  registry.Addr // of the ending
	}{
		{name: "a question and its answer", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.say("q")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "1 <- q", "ends: idle"}, attempts: 1, endpoint: at(1)},

		{name: "what the client sends meanwhile waits, in order", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("1")
			d.say("2")
			d.search()
			d.say("3")
			d.end(traffic.Idle)
		}, log: []string{"1 <- 1", "1 <- 2", "1 <- 3", "ends: idle"}, attempts: 1, endpoint: at(1)},

		{name: "only so many datagrams wait", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			for range MaxWaiting + 2 {
				d.say("x")
			}
			d.end(traffic.Evicted)
		}, log: []string{"ends: evicted"}, drops: drops{traffic.DropWaiting: 2, traffic.DropEnded: MaxWaiting}},

		{name: "only so many bytes wait", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.f.Sessions.WaitingBytes.Add(admit.MaxWaitingBytes - 1)
			d.say("1")
			d.say("2")
			d.search()
			d.f.Sessions.WaitingBytes.Add(1 - admit.MaxWaitingBytes)
			d.end(traffic.Idle)
		}, log: []string{"1 <- 1", "ends: idle"}, drops: drops{traffic.DropWaiting: 1}, attempts: 1, endpoint: at(1)},

		{name: "its endpoint goes: it moves with the next datagram", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.f.set(at(2))
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "2 <- r", "ends: idle"}, attempts: 2, moved: 1, endpoint: at(2)},

		{name: "what comes while it moves waits", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.f.set(at(2))
			verdict := d.Forward([]byte("r"))
			d.say("s")
			d.move(verdict)
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "2 <- r", "2 <- s", "ends: idle"}, attempts: 2, moved: 1, endpoint: at(2)},

		{name: "its only endpoint goes", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.f.set()
			d.say("r")
		}, log: []string{"1 <- q", "ends: endpoint_removed"}, drops: drops{traffic.DropNoEndpoints: 1}, attempts: 1, endpoint: at(1)},

		{name: "there is no endpoint after all", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.choice = d.Claim.Choose(aClient.Client.Addr())
			d.f.set()
			d.search()
		}, log: []string{"ends: no_endpoints"}, drops: drops{traffic.DropNoEndpoints: 1}},

		{name: "an endpoint that is gone answers what it was asked, and no more", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.f.set(at(2))
			d.hear("a")
			d.hear("unasked")
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "2 <- r", "ends: idle"}, drops: drops{traffic.DropEnded: 1}, attempts: 2, moved: 1, endpoint: at(2)},

		{name: "what is refused goes to the next endpoint", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.refuse[at(1)] = errRefused
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "2 <- r", "ends: idle"}, attempts: 2, moved: 1, endpoint: at(2)},

		{name: "what was answered is not sent again", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.move(d.Refused(d.visit, errRefused))
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "ends: idle"}, attempts: 2, moved: 1, endpoint: at(2)},

		{name: "the only endpoint has refused, and is offered again", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.move(d.Refused(d.visit, errRefused))
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "ends: idle"}, attempts: 2, endpoint: at(1)},

		{name: "what is too long to keep is lost with who refuses it", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.refuse[at(1)] = errRefused
			d.say(long)
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "1 <- " + long, "ends: idle"}, drops: drops{traffic.DropUnreachable: 1}, attempts: 2, failures: 1, endpoint: at(2)},

		{name: "who refuses at once was only tried", endpoints: []registry.Addr{at(1), at(2), at(3)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.refuse[at(1)] = errRefused
			d.say("r")
			d.refuse[at(2)] = errRefused
			d.now += SettleTime
			d.say("s")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "2 <- r", "2 <- s", "3 <- s", "ends: idle"}, attempts: 3, moved: 2, failures: 1, endpoint: at(3)},

		{name: "who was only tried carried nothing", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.refuse[at(1)] = errRefused
			d.say("r")
		}, log: []string{"1 <- q", "1 <- r", "ends: dial_failed"}, drops: drops{traffic.DropUnreachable: 1}, attempts: 1, failures: 1},

		{name: "who is silent and does not refuse for a while counts as reached", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.refuse[at(1)] = errRefused
			d.say("q")
			d.search()
			d.now += SettleTime + 1
			d.refuse = map[registry.Addr]error{at(2): errRefused}
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "1 fails", "2 <- q", "2 <- r", "1 <- r", "ends: idle"}, attempts: 3, moved: 1, failures: 1, endpoint: at(1)},

		{name: "all endpoints refuse: each is sent what waits once", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.refuse[at(1)], d.refuse[at(2)] = errRefused, errRefused
			d.say("1")
			d.say("2")
			d.search()
		}, log: []string{"1 <- 1", "1 fails", "2 <- 1", "2 fails", "ends: dial_failed"}, drops: drops{traffic.DropUnreachable: 2}, attempts: 2, failures: 2},

		{name: "a refusal that comes when the session has left is no news", endpoints: []registry.Addr{at(1), at(2), at(3)}, do: func(d *driven) {
			d.say("q")
			d.search()
			old := d.visit
			d.move(d.Refused(old, errRefused))
			d.move(d.Refused(old, errRefused))
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "2 <- q", "ends: idle"}, attempts: 2, failures: 1, endpoint: at(2)},

		{name: "a reply that comes when the session has left is dropped", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			old := d.visit
			d.move(d.Refused(old, errRefused))
			d.move(d.Answered(old, 1))
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "2 <- q", "ends: idle"}, drops: drops{traffic.DropEnded: 1}, attempts: 2, failures: 1, endpoint: at(2)},

		{name: "a reply that was cut is dropped, and is an answer", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear(tooLong)
			d.move(d.Refused(d.visit, errRefused)) // nothing is sent again
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "ends: idle"}, drops: drops{traffic.DropTooLong: 1}, attempts: 2, moved: 1, endpoint: at(2)},

		{name: "the search for an endpoint has its time", endpoints: []registry.Addr{at(1), at(2), at(3)}, do: func(d *driven) {
			d.refuse[at(1)], d.refuse[at(2)] = errRefused, errRefused
			d.now = d.until
			d.say("q")
			d.search()
		}, log: []string{"1 <- q", "1 fails", "ends: dial_failed"}, drops: drops{traffic.DropUnreachable: 1}, attempts: 1, failures: 1},

		{name: "and the next search has its own", endpoints: []registry.Addr{at(1), at(2), at(3)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.now = d.until
			d.refuse[at(1)], d.refuse[at(2)] = errRefused, errRefused
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "2 <- r", "2 fails", "3 <- r", "ends: idle"}, attempts: 3, moved: 1, failures: 1, endpoint: at(3)},

		{name: "without descriptors no other endpoint is tried", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.refuse[at(1)] = syscall.EMFILE
			d.say("q")
			d.search()
		}, log: []string{"1 <- q", "1 fails", "ends: descriptor_limit"}, drops: drops{traffic.DropDescriptorLimit: 1}},

		{name: "it has ended, and a refusal comes", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.search()
			v := d.visit
			d.end(traffic.Evicted)
			d.Refused(v, errRefused)
		}, log: []string{"1 <- q", "ends: evicted"}, drops: drops{traffic.DropEnded: 1}, attempts: 1, endpoint: at(1)},

		{name: "it has ended, and whoever comes begins anew", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.end(traffic.Evicted)
			if _, over := d.HandOver(new(UDPVisit), 0); d.Forward([]byte("q")) != UDPOver || over != UDPOver {
				d.note("it takes a datagram")
			}
		}, log: []string{"ends: evicted"}},

		{name: "the first reason counts", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.End(traffic.Shutdown)
			d.End(traffic.Idle)
			d.GiveUp()
			d.search()
		}, log: []string{"ends: shutdown"}, drops: drops{traffic.DropEnded: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, Config{}, c.endpoints...)
			d := f.begin(t)
			d.now = 0
			c.do(d)
			if !slices.Equal(d.log, c.log) {
				t.Errorf("it went\n\t%s; want\n\t%s", strings.Join(d.log, "\n\t"), strings.Join(c.log, "\n\t"))
			}
			if got := f.dropped(); !maps.Equal(got, c.drops) {
				t.Errorf("dropped %v; want %v", got, c.drops)
			}
			tally := f.owner.Tally.Totals()
			if tally.MovedSessions != c.moved || tally.DialFailures != c.failures {
				t.Errorf("%d moves, %d dials that failed; want %d and %d", tally.MovedSessions, tally.DialFailures, c.moved, c.failures)
			}
			if len(d.endings) != 1 {
				t.Fatalf("%d endings", len(d.endings))
			}
			if e := d.endings[0]; e.Attempts != c.attempts || e.Endpoint != c.endpoint || e.Sent != tally.Sent || e.Received != tally.Received {
				t.Errorf("the ending is %+v; want %d attempts, endpoint %v, %d bytes sent, %d received", e, c.attempts, c.endpoint, tally.Sent, tally.Received)
			}
			for _, e := range f.owner.Rotation.Endpoints() {
				if n := e.Status().Active; n != 0 {
					t.Errorf("%v still has %d sessions", e.Addr, n)
				}
			}
			if got := []int64{tally.Active, f.Sessions.Existing.Load(), f.Budget.Used.Load(), f.Sessions.WaitingBytes.Load(), int64(f.Sessions.Counted())}; !slices.Equal(got, make([]int64, 5)) {
				t.Errorf("active, existing, descriptors, waiting bytes, counted: %v; want none", got)
			}
		})
	}
}

func TestTheEndingOfASessionTellsWhatItWas(t *testing.T) {
	d := newFixture(t, Config{}, at(1)).begin(t)
	d.say("four")
	d.search()
	d.hear("answer")
	d.end(traffic.Shutdown)
	got := d.endings[0]
	if got.Began.IsZero() || got.Dialled <= 0 || got.Dialled > got.Duration {
		t.Errorf("began at %v, took %v, and %v until the first endpoint", got.Began, got.Duration, got.Dialled)
	}
	want := traffic.Ending{
		Protocol: registry.UDP, Service: d.f.owner.Key, Port: 53, Client: aClient.Client, Endpoint: at(1),
		Began: got.Began, Duration: got.Duration, Dialled: got.Dialled, Attempts: 1, Sent: 4, Received: 6, Reason: traffic.Shutdown,
	}
	if got != want {
		t.Errorf("told of %+v; want %+v", got, want)
	}
	if tally := d.f.owner.Tally.Totals(); tally.SentDatagrams != 1 || tally.ReceivedDatagrams != 1 || tally.Ended[traffic.Shutdown] != 1 {
		t.Errorf("counted %+v; want one datagram each way, and one end", tally)
	}
}

// Why an endpoint cannot be the session's decides whose fault that is, whether the next one is tried, and what is told if none is left.
func TestWhyAnEndpointCannotBeASessions(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errRefused}
	for _, c := range []struct {
		err      error
		drop     traffic.DropReason
		reason   traffic.Reason
		next     bool // another endpoint is tried
		failed   bool // it counts as a failure of the endpoint
		aside    bool // the endpoint is not offered to others for now, either
		unixOnly bool
	}{
		{err: refused, drop: traffic.DropUnreachable, reason: traffic.DialFailed, next: true, failed: true, aside: true},
		{err: ErrReachedItself, drop: traffic.DropUnreachable, reason: traffic.DialFailed, next: true, failed: true, aside: true},
		{err: admit.ErrOwnListener, drop: traffic.DropOwnListener, reason: traffic.OwnListener, next: true, aside: true},
		{err: registry.ErrNotAllowed, drop: traffic.DropNotAllowed, reason: traffic.EndpointNotAllowed, next: true, aside: true},
		{err: admit.ErrLoop, drop: traffic.DropLoop, reason: traffic.Loop, next: true},
		{err: admit.ErrUnresolved, drop: traffic.DropUnresolved, reason: traffic.NameFailed, next: true, aside: true},
		{err: admit.ErrNoDescriptors, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.EMFILE, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.ENFILE, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.EAGAIN, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit, unixOnly: true}, // no local port is left
	} {
		if c.unixOnly && !sockopt.IsOurTrouble(c.err) {
			continue
		}
		t.Run(c.err.Error(), func(t *testing.T) {
			f := newFixture(t, Config{}, at(1), at(2))
			d := f.begin(t)
			if d.IsRetry() {
				t.Error("the first endpoint is a retry")
			}
			e, _ := d.Next(0)
			if !d.IsRetry() {
				t.Error("the second endpoint is no retry")
			}
			d.Cannot(e, c.err)
			if d.IsRetry() != c.next {
				t.Errorf("another endpoint is tried: %v; want %v", d.IsRetry(), c.next)
			}
			if got := f.owner.Tally.DialFailures.Load() == 1 && d.attempts == 1 && e.Status().Failures == 1; got != c.failed {
				t.Errorf("it counts as a failure: %v; want %v", got, c.failed)
			}
			other := f.owner.Choose(aClient.Client.Addr()) // whose turn is the second endpoint's
			other.Next()
			third := f.owner.Choose(aClient.Client.Addr())
			if again, _ := third.Next(); (again != e) != c.aside {
				t.Errorf("the next client is offered %v: %v failed", again.Addr, e.Addr)
			}
			if _, ok := d.Next(0); ok != c.next {
				t.Errorf("another endpoint is offered: %v; want %v", ok, c.next)
			}
			d.say("q")
			d.GiveUp()
			d.search()
			if got := d.endings[0].Reason; got != c.reason || f.dropped()[c.drop] != 1 {
				t.Errorf("it ends by %v, dropped %v; want %v and %v", got, f.dropped(), c.reason, c.drop)
			}
		})
	}
}

// What cannot be sent just then costs the datagram, and neither the session nor the endpoint.
func TestWhatAFailureToSendCosts(t *testing.T) {
	for _, c := range []struct {
		err     error
		refuses bool
		there   traffic.DropReason // what it costs on the way to the endpoint, unless that refuses
		back    traffic.DropReason // and on the way to the client
	}{
		{err: syscall.EAGAIN, there: traffic.DropNotSent, back: traffic.DropNotSent},
		{err: syscall.ENOBUFS, there: traffic.DropNotSent, back: traffic.DropNotSent},
		{err: syscall.EPERM, there: traffic.DropNotSent, back: traffic.DropNotSent},
		{err: syscall.EMSGSIZE, there: traffic.DropTooLong, back: traffic.DropClient},
		{err: syscall.ECONNREFUSED, refuses: true, back: traffic.DropClient},
		{err: net.ErrClosed, refuses: true, back: traffic.DropEnded},
		{err: os.ErrDeadlineExceeded, refuses: true, back: traffic.DropNotSent},
	} {
		if !sockopt.IsTooLong(syscall.EMSGSIZE) {
			t.Skip("this system's errors have no common form")
		}
		err := &net.OpError{Op: "write", Err: c.err}
		d := newFixture(t, Config{}, at(1)).begin(t)
		if refusal := d.Sent(1, err); (refusal != nil) != c.refuses {
			t.Errorf("%v: the endpoint refuses: %v; want %v", c.err, refusal, c.refuses)
		}
		want := drops{}
		if !c.refuses {
			want[c.there]++
		}
		if !maps.Equal(d.f.dropped(), want) {
			t.Errorf("%v, to the endpoint: dropped %v; want %v", c.err, d.f.dropped(), want)
		}
		d.Delivered(1, err)
		want[c.back]++
		if !maps.Equal(d.f.dropped(), want) {
			t.Errorf("%v, to the client: dropped %v; want %v", c.err, d.f.dropped(), want)
		}
	}
}

// A session is known once its client has spoken again after a reply, and not before.
func TestASessionIsConfirmedByADatagramAfterAReply(t *testing.T) {
	d := newFixture(t, Config{}, at(1)).begin(t)
	known := func() int { return d.f.Sessions.Known() }
	d.say("1")
	d.search()
	d.say("2")
	if known() != 0 {
		t.Error("confirmed before a reply")
	}
	d.hear("a")
	if known() != 0 {
		t.Error("confirmed by a reply")
	}
	d.say("3")
	d.say("4")
	if known() != 1 {
		t.Error("not confirmed by a datagram after a reply")
	}
}

func TestASessionIsIdleWhenNeitherSideHasSpoken(t *testing.T) {
	d := newFixture(t, Config{UDPTimeout: time.Nanosecond}, at(1)).begin(t)
	d.say("q")
	time.Sleep(time.Microsecond)
	if rest, idle := d.IsIdle(); idle || rest != time.Nanosecond {
		t.Errorf("while an endpoint is being found it is idle: %v, or in %v", idle, rest)
	}
	d.search()
	if _, idle := d.IsIdle(); !idle {
		t.Error("it is not idle")
	}
	d.f.Cfg.UDPTimeout = time.Hour
	if rest, idle := d.IsIdle(); idle || rest <= 0 || rest >= time.Hour {
		t.Errorf("it is idle: %v, or in %v; want in an hour", idle, rest)
	}
	for name, speak := range map[string]func(){"the client": func() { d.say("q") }, "the endpoint": func() { d.hear("a") }} {
		before, _ := d.IsIdle()
		time.Sleep(time.Millisecond)
		speak()
		if after, _ := d.IsIdle(); after <= before-time.Millisecond {
			t.Errorf("%s has spoken, and the session may be silent for %v after %v", name, after, before)
		}
	}
}

// Who has ended takes nobody's turn: the next client gets the next endpoint.
func TestASessionThatHasEndedIsOfferedNoEndpoint(t *testing.T) {
	f := newFixture(t, Config{}, at(1), at(2), at(3))
	d := f.begin(t)
	d.say("q")
	d.search()
	d.hear("a")
	d.end(traffic.Idle)
	next := f.owner.Choose(aClient.Client.Addr())
	if e, _ := next.Next(); e.Addr != at(2) {
		t.Errorf("the next client is offered %v; want %v", e.Addr, at(2))
	}
}

// A name is waited for as long as TCP would while there are other endpoints, and the last one for as long as it takes.
func TestTheLastEndpointMayTakeAsLongAsALookUp(t *testing.T) {
	d := newFixture(t, Config{}, at(1), at(2)).begin(t)
	d.Next(0)
	if got := d.LookUpPatience(); got != Stagger {
		t.Errorf("the first of two endpoints is waited for %v; want %v", got, Stagger)
	}
	d.Next(0)
	if got := d.LookUpPatience(); got != admit.LookUpTimeout {
		t.Errorf("the last endpoint is waited for %v; want %v", got, admit.LookUpTimeout)
	}
}

// What waits, or is kept, is a copy: the next datagram is read into the same buffer.
func TestWhatWaitsIsACopy(t *testing.T) {
	d := newFixture(t, Config{}, at(1), at(2)).begin(t)
	buffer := []byte("1")
	d.Forward(buffer)
	buffer[0] = '2'
	d.search()
	d.hear("a")
	d.Forward(buffer)
	buffer[0] = '3'
	d.move(d.Refused(d.visit, errRefused))
	if want := []string{"1 <- 1", "client <- a", "2 <- 2"}; !slices.Equal(d.log, want) {
		t.Errorf("it went %q; want %q", d.log, want)
	}
}

// Who answers is well, and a client of a service with affinity is remembered from when it was given its endpoint.
func TestASessionTellsTheRotationWhatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Config{}, at(1), at(2), at(3))
		f.owner.Affinity = 2 * time.Second
		d := f.begin(t)
		e, _ := d.Next(0)
		time.Sleep(time.Second) // as long as the look-up of a name may take
		d.visit = &UDPVisit{Endpoint: e}
		d.connect(d.visit)
		d.Reached(d.visit)
		e.Failed(registry.UDP)
		d.hear("a")
		if !e.Status().DownUntil.IsZero() {
			t.Error("an endpoint that has answered is passed over")
		}
		time.Sleep(time.Second)
		again := f.owner.Choose(aClient.Client.Addr())
		if got, _ := again.Next(); got != e {
			t.Errorf("the client is offered %v; it had %v a second ago", got.Addr, e.Addr)
		}
	})
}

func TestADatagramOfASessionAllocatesNothing(t *testing.T) {
	d := newFixture(t, Config{}, at(1)).begin(t)
	d.say("q")
	d.search()
	datagram := make([]byte, MaxKept)
	d.Forward(datagram) // which keeps room for the next
	if n := testing.AllocsPerRun(100, func() {
		d.Forward(datagram)
		d.Sent(len(datagram), nil)
		d.Answered(d.visit, len(datagram))
		d.Delivered(len(datagram), nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
