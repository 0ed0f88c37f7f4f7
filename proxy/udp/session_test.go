package udp

import (
	"maps"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

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
		failures  uint64 // attempts that failed
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
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "2 <- r", "ends: idle"}, attempts: 2, moved: 1, failures: 1, endpoint: at(2)},

		{name: "what was answered is not sent again", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.move(d.Refused(d.visit, errRefused))
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "ends: idle"}, attempts: 2, moved: 1, failures: 1, endpoint: at(2)},

		{name: "the only endpoint has refused, and is offered again", endpoints: []registry.Addr{at(1)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.hear("a")
			d.move(d.Refused(d.visit, errRefused))
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "ends: idle"}, attempts: 2, failures: 1, endpoint: at(1)},

		{name: "what is too long to keep is lost with who refuses it", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("q")
			d.search()
			d.say(long)
			d.refuse[at(1)] = errRefused
			d.say("r")
			d.end(traffic.Idle)
		}, log: []string{"1 <- q", "1 <- " + long, "1 <- r", "2 <- r", "ends: idle"}, drops: drops{traffic.DropUnreachable: 1}, attempts: 2, failures: 1, endpoint: at(2)},

		{name: "the error of a send is about the datagram before", endpoints: []registry.Addr{at(1), at(2)}, do: func(d *driven) {
			d.say("1")
			d.search()
			d.refuse[at(1)] = errRefused // the kernel has heard so since
			d.say(long)
			d.say("3")
			d.end(traffic.Idle)
		}, log: []string{"1 <- 1", "1 <- " + long, "2 <- 1", "2 <- " + long, "2 <- 3", "ends: idle"}, attempts: 2, failures: 1, endpoint: at(2)},

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
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "2 <- r", "2 <- s", "3 <- r", "3 <- s", "ends: idle"}, attempts: 3, moved: 2, failures: 2, endpoint: at(3)},

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
		}, log: []string{"1 <- q", "1 fails", "2 <- q", "2 <- r", "1 <- q", "1 <- r", "ends: idle"}, attempts: 3, moved: 1, failures: 2, endpoint: at(1)},

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
		}, log: []string{"1 <- q", "ends: idle"}, drops: drops{traffic.DropTooLong: 1}, attempts: 2, moved: 1, failures: 1, endpoint: at(2)},

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
		}, log: []string{"1 <- q", "client <- a", "1 <- r", "2 fails", "3 <- r", "ends: idle"}, attempts: 3, moved: 1, failures: 2, endpoint: at(3)},

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
			if _, over := d.HandOver(new(Visit), 0); d.Forward([]byte("q")) != Over || over != Over {
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
			f := newFixture(t, engine.Config{}, c.endpoints...)
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
				t.Errorf("%d moves, %d attempts that failed; want %d and %d", tally.MovedSessions, tally.DialFailures, c.moved, c.failures)
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
		d := newFixture(t, engine.Config{}, at(1)).begin(t)
		if _, refusal := d.sentOn(1, err); (refusal != nil) != c.refuses {
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
	d := newFixture(t, engine.Config{}, at(1)).begin(t)
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

// What waits, or is kept, is a copy: the next datagram is read into the same buffer.
func TestWhatWaitsIsACopy(t *testing.T) {
	d := newFixture(t, engine.Config{}, at(1), at(2)).begin(t)
	buffer := []byte("1")
	d.Forward(buffer)
	buffer[0] = '2'
	d.search()
	d.hear("a")
	d.Forward(buffer)
	d.Carried(buffer)
	buffer[0] = '3'
	d.move(d.Refused(d.visit, errRefused))
	if want := []string{"1 <- 1", "client <- a", "2 <- 2"}; !slices.Equal(d.log, want) {
		t.Errorf("it went %q; want %q", d.log, want)
	}
}

func TestADatagramOfASessionAllocatesNothing(t *testing.T) {
	d := newFixture(t, engine.Config{}, at(1)).begin(t)
	d.say("q")
	d.search()
	datagram := make([]byte, MaxKept)
	d.Forward(datagram)
	d.Carried(datagram) // which keeps room for the next
	if n := testing.AllocsPerRun(100, func() {
		d.Forward(datagram)
		d.sentOn(len(datagram), nil)
		d.Carried(datagram)
		d.Answered(d.visit, len(datagram))
		d.Delivered(len(datagram), nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
