package udp

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A driven session is one whose engine is the test: it connects to nothing, and notes what it would send.
type driven struct {
	Session
	f       *fixture
	visit   *Visit // what the engine holds a socket for
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
	if _, ok := f.port.Begin(&d.Session, new(evicted), f.owner, aClient); !ok {
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
		v := &Visit{Endpoint: e, Began: d.now}
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

func (d *driven) connect(v *Visit) error {
	for sent := 0; ; sent++ {
		next, verdict := d.HandOver(v, sent)
		if verdict == Done {
			return d.refuse[v.Endpoint.Addr]
		}
		d.note(nameOf(v.Endpoint.Addr), "<-", string(next))
		if _, err := d.sentOn(len(next), d.refuse[v.Endpoint.Addr]); err != nil {
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
func (d *driven) move(verdict Verdict) {
	if verdict == Move {
		d.depart()
		d.search()
	}
}

// say has the client send a datagram.
func (d *driven) say(datagram string) {
	for {
		verdict := d.Forward([]byte(datagram))
		if verdict != Send {
			d.move(verdict)
			return
		}
		e := d.visit.Endpoint.Addr
		d.note(nameOf(e), "<-", datagram)
		sent, err := d.sentOn(len(datagram), d.refuse[e])
		if err == nil {
			if sent {
				d.Carried([]byte(datagram))
			}
			return
		}
		d.move(d.Refused(d.visit, err))
	}
}

// hear has the endpoint answer.
func (d *driven) hear(answer string) {
	verdict := d.Answered(d.visit, len(answer))
	if verdict == Send {
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
