package udp

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func TestTheEndingOfASessionTellsWhatItWas(t *testing.T) {
	d := newFixture(t, engine.Config{}, at(1)).begin(t)
	d.say("four")
	d.search()
	d.hear("answer")
	d.end(traffic.Shutdown)
	got := d.endings[0]
	if got.Began.IsZero() || got.Dialled <= 0 || got.Dialled > got.Duration {
		t.Errorf("began at %v, took %v, and %v until the first endpoint", got.Began, got.Duration, got.Dialled)
	}
	want := traffic.Ending{
		Listener: registry.ListenerID{Protocol: registry.UDP, Number: 53}, Service: d.f.owner.Key, Client: aClient.Client, Endpoint: at(1),
		Began: got.Began, Duration: got.Duration, Dialled: got.Dialled, Attempts: 1, Sent: 4, Received: 6, Reason: traffic.Shutdown,
	}
	if got != want {
		t.Errorf("told of %+v; want %+v", got, want)
	}
	if tally := d.f.owner.Tally.Totals(); tally.SentDatagrams != 1 || tally.ReceivedDatagrams != 1 || tally.Ended[traffic.Shutdown] != 1 {
		t.Errorf("counted %+v; want one datagram each way, and one end", tally)
	}
}

func TestASessionIsIdleWhenNeitherSideHasSpoken(t *testing.T) {
	d := newFixture(t, engine.Config{UDPTimeout: time.Nanosecond}, at(1)).begin(t)
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

// The endpoint has as long to answer a client that has waited as any other.
func TestTheSilenceOfASessionThatHasWaitedCountsFromWhenItsEndpointIsSentWhatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(-monotonic.Now() + time.Second) // a bubble begins in the year 2000, before that clock does
		f := newFixture(t, engine.Config{UDPTimeout: 500 * time.Millisecond})
		f.owner.Terms.Timeouts.Wait = time.Minute
		d := f.begin(t)
		d.say("q")
		time.Sleep(10 * time.Second)
		d.f.set(at(1))
		d.now = monotonic.Now()
		d.search()
		if rest, idle := d.IsIdle(); idle || rest != 500*time.Millisecond {
			t.Errorf("it is idle: %v, or in %v; want in half a second", idle, rest)
		}
	})
}

// A port that drains lets nobody in, and its sessions may be silent for a short time only. They end because of the stop.
func TestAPortThatDrainsEndsSilentSessionsAndLetsNobodyIn(t *testing.T) {
	d := newFixture(t, engine.Config{UDPTimeout: time.Hour}, at(1)).begin(t)
	d.say("q")
	d.search()
	d.f.port.Drain()
	if rest, idle := d.IsIdle(); idle || rest > DrainSilence {
		t.Errorf("it is idle: %v, or in %v; want in %v at most", idle, rest, DrainSilence)
	}
	other := aClient
	other.Client = netip.AddrPortFrom(other.Client.Addr(), other.Client.Port()+1)
	if d.f.port.MayBegin(d.f.owner, other, func() bool { return false }) {
		t.Error("another client may begin a session")
	}
	if n := d.f.dropped()[traffic.DropShutdown]; n != 1 {
		t.Errorf("%d datagrams were dropped because of the stop; want one", n)
	}
	d.EndIdle()
	if d.reason != traffic.Shutdown {
		t.Errorf("it has ended because of %s", d.reason)
	}
}
