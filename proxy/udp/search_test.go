package udp

import (
	"bytes"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

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
		{err: admit.ErrReachedItself, drop: traffic.DropUnreachable, reason: traffic.DialFailed, next: true, failed: true, aside: true},
		{err: admit.ErrOwnListener, drop: traffic.DropOwnListener, reason: traffic.OwnListener, next: true, aside: true},
		{err: registry.ErrNotAllowed, drop: traffic.DropNotAllowed, reason: traffic.EndpointNotAllowed, next: true, aside: true},
		{err: admit.ErrLoop, drop: traffic.DropLoop, reason: traffic.Loop, next: true},
		{err: admit.ErrUnresolved, drop: traffic.DropUnresolved, reason: traffic.NameFailed, next: true, aside: true},
		{err: admit.ErrNoDescriptors, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.EMFILE, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.ENFILE, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.ENOMEM, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},
		{err: syscall.ENOSPC, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit},                 // there is no room for what epoll watches
		{err: syscall.EAGAIN, drop: traffic.DropDescriptorLimit, reason: traffic.DescriptorLimit, unixOnly: true}, // no local port is left
	} {
		if c.unixOnly && !sockopt.IsOurTrouble(c.err) {
			continue
		}
		t.Run(c.err.Error(), func(t *testing.T) {
			f := newFixture(t, engine.Config{}, at(1), at(2))
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

// A session that has ended does not move the cursor: the next client gets the next endpoint.
func TestASessionThatHasEndedIsOfferedNoEndpoint(t *testing.T) {
	f := newFixture(t, engine.Config{}, at(1), at(2), at(3))
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
	d := newFixture(t, engine.Config{}, at(1), at(2)).begin(t)
	d.Next(0)
	if got := d.LookUpTimeout(); got != engine.Stagger {
		t.Errorf("the first of two endpoints is waited for %v; want %v", got, engine.Stagger)
	}
	d.Next(0)
	if got := d.LookUpTimeout(); got != admit.LookUpTimeout {
		t.Errorf("the last endpoint is waited for %v; want %v", got, admit.LookUpTimeout)
	}
}

// Who answers is well, and a client of a service with affinity is remembered from when it was given its endpoint.
func TestASessionTellsTheRotationWhatItFinds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, engine.Config{}, at(1), at(2), at(3))
		f.owner.AffinityTimeout = 2 * time.Second
		d := f.begin(t)
		e, _ := d.Next(0)
		time.Sleep(time.Second) // as long as the look-up of a name may take
		d.visit = &Visit{Endpoint: e}
		d.connect(d.visit)
		d.Reached(d.visit)
		e.Failed(registry.UDP)
		d.hear("a")
		if !e.Status().EjectedUntil.IsZero() {
			t.Error("an endpoint that has answered is ejected")
		}
		time.Sleep(time.Second)
		again := f.owner.Choose(aClient.Client.Addr())
		if got, _ := again.Next(); got != e {
			t.Errorf("the client is offered %v; it had %v a second ago", got.Addr, e.Addr)
		}
	})
}

// waitsFor checks that the session is offered no endpoint, and waits for one for so long.
func (s *Session) waitsFor(t *testing.T, want time.Duration) {
	t.Helper()
	if e, ok := s.Next(monotonic.Now()); ok {
		t.Fatalf("it is offered %v", e.Addr)
	}
	ctx, cancel, ok := s.Awaits()
	if !ok {
		t.Fatal("it does not wait")
	}
	defer cancel()
	if until, _ := ctx.Deadline(); time.Until(until) != want {
		t.Errorf("it waits for %v; want %v", time.Until(until), want)
	}
}

// kube-proxy/wait counts from when the session has no endpoint, and not from its begin.
func TestASessionThatLosesItsEndpointWaitsAsLongAsANewOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, engine.Config{}, at(1))
		f.owner.Terms.Timeouts.Wait = 10 * time.Second
		d := f.begin(t)
		d.say("q")
		d.search()
		d.hear("a")
		time.Sleep(time.Minute)
		d.now = monotonic.Now()
		f.set()
		if verdict := d.Forward([]byte("r")); verdict != Move {
			t.Fatalf("verdict %v; want Move", verdict)
		}
		d.depart()
		d.Session.waitsFor(t, 10*time.Second)
	})
}

func TestASessionThatWaitsDoesSoByTheTermsThatItsServiceHasNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, engine.Config{}, at(1))
		says := func(terms registry.Terms) {
			renewed := *f.owner
			renewed.Terms = &terms
			f.port.Owner.Store(&renewed)
		}
		wait := func(d time.Duration) (terms registry.Terms) {
			terms.HolderKey, terms.Timeouts.Wait = "/leader", d
			return terms
		}
		*f.owner.Terms = wait(time.Minute)
		d := f.begin(t)
		e, _ := d.Next(monotonic.Now())
		d.Cannot(e, errRefused)
		d.Session.waitsFor(t, health.FirstEjection)
		says(wait(500 * time.Millisecond))
		d.Session.waitsFor(t, 500*time.Millisecond) // and what has just refused is not offered again
		time.Sleep(100 * time.Millisecond)
		says(wait(300 * time.Millisecond))
		d.Session.waitsFor(t, 200*time.Millisecond)
		says(registry.Terms{})
		if _, _, ok := d.Awaits(); ok {
			t.Error("it waits, though its service has it wait no more")
		}
	})
}

// A syslog server never answers. After a refusal it counts as failing until somebody finds it well, and that is who sends on and is not refused.
func TestAnEndpointThatNeverAnswersIsWellOnceItRefusesNoMore(t *testing.T) {
	for _, how := range []string{"the session goes on", "the session ends after one datagram"} {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(-monotonic.Now() + time.Second) // a bubble begins in the year 2000, before that clock does
			f := newFixture(t, engine.Config{}, at(1))
			sink := f.owner.Rotation.Endpoints()[0]
			ejectedFor := func() time.Duration { return time.Until(sink.Status().EjectedUntil) }
			d := f.begin(t)
			d.now = monotonic.Now()
			d.say("a")
			d.search()
			d.Refused(d.visit, errRefused)
			d.now = monotonic.Now()
			d.depart()
			d.end(traffic.Idle)
			if sink.Status().FailingSince.IsZero() || ejectedFor() != health.FirstEjection {
				t.Fatalf("%s: an endpoint that has refused is not ejected", how)
			}

			d = f.begin(t) // the only endpoint is offered, and it is there again
			d.now = monotonic.Now()
			d.say("b")
			d.search()
			time.Sleep(SettleTime / 2)
			d.say("c")
			if sink.Status().FailingSince.IsZero() {
				t.Errorf("%s: half a second without a refusal counts", how)
			}
			time.Sleep(SettleTime)
			d.now = monotonic.Now()
			if how == "the session goes on" {
				d.say("d")
			} else {
				d.end(traffic.Idle)
			}
			if s := sink.Status(); !s.FailingSince.IsZero() {
				t.Errorf("%s: it has refused nothing for longer than %v, and fails since %v", how, SettleTime, s.FailingSince)
			}
			sink.Failed(registry.UDP)
			if ejectedFor() != health.FirstEjection {
				t.Errorf("%s: it refuses once more, and is ejected for %v", how, ejectedFor())
			}
			if !d.Ended() {
				time.Sleep(SettleTime / 2)
				d.say("e") // the first since that refusal: nothing is known of it yet
				time.Sleep(SettleTime)
				if sink.Status().FailingSince.IsZero() {
					t.Errorf("%s: what was sent before a refusal counts after it", how)
				}
				d.end(traffic.Idle)
			}
		})
	}
}

// One endpoint is full, and the other one ejected: no news tells that an ejection is over.
func TestASessionThatWaitsIsOfferedAnEjectedEndpointOnceItIsDueBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, engine.Config{}, at(1), at(2))
		service := &registry.Service{Name: web, Ports: []registry.Port{{Protocol: registry.UDP}}}
		service.SetTerms(registry.Terms{Timeouts: registry.Timeouts{Wait: time.Minute}, Limits: registry.Limits{PerEndpoint: 1}})
		f.owner.Terms = service.Terms()
		f.lb.SetServices(map[registry.Name]*registry.Service{web: service}, nil)
		ejected := f.owner.Rotation.Endpoints()[0]
		d := f.begin(t)
		ejected.Failed(registry.UDP)
		if err := f.owner.Rotation.Endpoints()[1].BeginDial(1); err != nil {
			t.Fatal(err)
		}
		if e, ok := d.Next(monotonic.Now()); ok {
			t.Fatalf("it is offered %v", e.Addr)
		}
		ctx, cancel, ok := d.Awaits()
		if !ok {
			t.Fatal("it does not wait")
		}
		defer cancel()
		if until, _ := ctx.Deadline(); time.Until(until) != health.FirstEjection {
			t.Errorf("it looks again after %v; want %v", time.Until(until), health.FirstEjection)
		}
		<-ctx.Done()
		if e, ok := d.Next(monotonic.Now()); !ok || e != ejected {
			t.Error("it is not offered the endpoint that is due back")
		}
	})
}

func TestASessionThatHasWaitedTriesAllEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, engine.Config{})
		f.owner.Terms.Timeouts.Wait = time.Minute
		d := f.begin(t)
		if _, ok := d.Next(monotonic.Now()); ok {
			t.Fatal("it is offered an endpoint")
		}
		_, cancel, ok := d.Awaits()
		if !ok {
			t.Fatal("it does not wait")
		}
		defer cancel()
		time.Sleep(f.Cfg.DialTotalTimeout + time.Second)
		f.set(at(1), at(2))
		for i := range 2 {
			e, ok := d.Next(monotonic.Now())
			if !ok {
				t.Fatalf("it is offered %d endpoints; want both", i)
			}
			d.Cannot(e, errRefused)
		}
	})
}

// A look-up may have a reference to a session long after that was evicted.
func TestASessionThatHasEndedKeepsNoDatagrams(t *testing.T) {
	f := newFixture(t, engine.Config{})
	f.owner.Terms.Timeouts.Wait = time.Minute // or it would not begin
	d := f.begin(t)
	d.Forward([]byte("q"))
	if len(d.waiting) != 1 {
		t.Fatalf("%d datagrams wait; want one", len(d.waiting))
	}
	d.GiveUp()
	d.Finish()
	if d.waiting != nil {
		t.Errorf("%d datagrams are kept", len(d.waiting))
	}
}

// The search of a session that a predecessor began has its time, too.
func TestAnAdoptedSessionWhoseEndpointRefusesIsOfferedAnother(t *testing.T) {
	f := newFixture(t, engine.Config{}, at(1), at(2))
	f.Budget.Take(1)
	s, v := new(Session), &Visit{To: at(1).IP}
	f.port.Adopt(s, new(evicted), &handover.UDP{Client: aClient.Client, Visit: handover.Visit{IsOn: true}}, engine.Place{Claim: f.owner, Endpoint: f.owner.Rotation.Endpoints()[0]}, v)
	if verdict := s.Refused(v, errRefused); verdict != Move {
		t.Fatalf("verdict %v; want Move", verdict)
	}
	now := monotonic.Now()
	s.Departed(v, now)
	if e, ok := s.Next(now); !ok || e.Addr != at(2) {
		t.Errorf("it is not offered the second endpoint")
	}
	s.End(traffic.Idle)
	s.Finish()
}

func TestWhatAPredecessorHasCountedAsLostIsNotCountedAgain(t *testing.T) {
	f := newFixture(t, engine.Config{}, at(1))
	d := f.begin(t)
	d.search()
	d.CountLost(d.visit, 5)
	message, place := d.Export(d.now), engine.Place{Claim: f.owner, Endpoint: f.owner.Rotation.Endpoints()[0]}
	d.CountLost(d.visit, 8) // it was lent, and is still here
	rest := d.Rest(1)
	d.end(traffic.Idle)

	f.Budget.Take(1)
	s, v := new(Session), &Visit{To: at(1).IP}
	v.AdoptLost(6) // as the kernel says now
	f.port.Adopt(s, new(evicted), &message, place, v)
	s.AdoptRest(&rest)
	s.CountLost(v, 10)
	if got := f.dropped()[traffic.DropQueueFull]; got != 10 {
		t.Errorf("%d are counted of 10 that were lost", got)
	}
	s.End(traffic.Idle)
	s.Finish()
}

// adopted is the session that a successor makes of what it is told of d.
func (d *driven) adopted(t *testing.T, at engine.Place) *Session {
	t.Helper()
	item := handover.Encode(new(d.Export(monotonic.Now())))
	var v *Visit
	if d.at != nil {
		v, item.Descriptors = &Visit{To: at.Endpoint.Addr.IP}, make([]int, 1)
	}
	message, err := handover.Decode(item)
	if err != nil {
		t.Fatal(err)
	}
	told := message.(*handover.UDP)
	d.f.Budget.Take(1)
	s := new(Session)
	d.f.port.Adopt(s, new(evicted), told, at, v)
	t.Cleanup(func() { s.End(traffic.Idle); s.Finish() })
	return s
}

// TestASessionThatWaitsIsGivenToASuccessor, however long its client's datagrams are: a message has room for 2 MiB.
func TestASessionThatWaitsIsGivenToASuccessor(t *testing.T) {
	f := newFixture(t, engine.Config{})
	f.owner.Terms.Timeouts.Wait = 10 * time.Second
	d := f.begin(t)
	for range MaxWaiting {
		d.Forward(make([]byte, 65_000))
	}
	kept := len(d.waiting)
	if body := handover.Encode(new(d.Export(0))).Body; kept == 0 || len(body) > 2<<20 || f.dropped()[traffic.DropWaiting] != uint64(MaxWaiting-kept) {
		t.Errorf("%d datagrams make a message of %d bytes; dropped %v", kept, len(body), f.dropped())
	}
	d.end(traffic.Idle)
}

// TestASessionThatLostItsEndpointWaitsOnInASuccessor for the rest of its time, and not for less because it is old.
func TestASessionThatLostItsEndpointWaitsOnInASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, engine.Config{}, at(1))
		f.owner.Terms.Timeouts.Wait = 10 * time.Second
		d := f.begin(t)
		d.say("q")
		d.search()
		time.Sleep(time.Minute)
		d.now = monotonic.Now()
		f.set()
		d.Forward([]byte("r"))
		d.depart()
		time.Sleep(4 * time.Second)
		s := d.adopted(t, engine.Place{Claim: f.owner})
		s.waitsFor(t, 6*time.Second)
		d.end(traffic.Idle)
	})
}

// TestASessionKeepsItsTermsInASuccessor: an annotation that has changed since it began is for new sessions.
func TestASessionKeepsItsTermsInASuccessor(t *testing.T) {
	for _, before := range []registry.ProxyHeader{registry.NoProxyHeader, registry.ProxyV2} {
		f := newFixture(t, engine.Config{}, at(1))
		f.owner.ProxyHeader = before
		d := f.begin(t)
		d.say("q")
		d.search()
		d.hear("a")
		now := *f.owner
		now.Terms = new(registry.Terms)
		now.Terms.Limits.Replies, now.Terms.Limits.Requests = 1, 1
		now.ProxyHeader = registry.ProxyV2 + registry.NoProxyHeader - before
		s := d.adopted(t, engine.Place{Claim: &now, Endpoint: f.owner.Rotation.Endpoints()[0]})
		if !bytes.Equal(s.header, d.header) {
			t.Errorf("begun with %v: its header is %q; want %q", before, s.header, d.header)
		}
		if s.replies != 0 {
			t.Errorf("it has %d replies of the predecessor, which did not count requests", s.replies)
		}
		for range 2 { // as an engine has it
			if s.Counts() && !s.Ask() {
				t.Error("it is refused a request")
			}
			if s.Answered(s.at, 1); s.Counts() && s.IsAnswered() {
				t.Error("it ends with a reply, which its service did not count when it began")
			}
		}
		d.end(traffic.Idle)
	}
}
