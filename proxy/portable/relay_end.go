package portable

import (
	"errors"
	"os"
	"time"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
)

// How a relay gets from the first of its ends to the last: it waits for what can still be delivered, but not
// for ever.

// end closes both connections, if they are still open.
func (r *relay) end() {
	for _, s := range []*side{&r.client, &r.backend} {
		if s.fin.Load() {
			s.conn.Close()
		} else {
			reset(s.conn)
		}
	}
}

// watch lets the relay end when, now that one direction has ended, there is silence. It returns when
// both have ended.
func (r *relay) watch() {
	silence := r.silence()
	tick := time.NewTicker(r.tick())
	defer tick.Stop()
	for {
		select {
		case <-r.done:
			return
		case <-tick.C:
			if silence.lasts() {
				r.because(traffic.HalfClosedTimeout)
				r.end()
			}
		}
	}
}

// discard reads what src goes on sending although dst takes no more: else src might be stuck in its
// writes before it has heard all that dst had to say.
func (r *relay) discard(src *side, buf []byte) {
	silence := r.silence()
	for !silence.lasts() {
		if src == &r.backend && r.pumping.Load() == 1 && !sockopt.Inspect(src.conn).Pending {
			return // it has the client's whole request, and works for nobody
		}
		src.conn.SetReadDeadline(time.Now().Add(r.tick()))
		if _, err := src.conn.Read(buf); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
	r.because(traffic.HalfClosedTimeout)
	r.end()
}

// flush waits until what was written to dst has been delivered, so that a reset does not destroy
// it. It gives up when there is silence. Where the kernel does not tell, it does not wait.
func (r *relay) flush(dst *side) {
	silence := r.silence()
	for pause := time.Millisecond; sockopt.Inspect(dst.conn).Pending && !silence.lasts(); pause = min(2*pause, 50*time.Millisecond) {
		time.Sleep(pause)
	}
}

// A silence is how long a relay has delivered nothing.
type silence struct {
	relay     *relay
	delivered uint64
	since     time.Time
}

func (r *relay) silence() silence { return silence{relay: r, since: time.Now()} }

// lasts tells whether the silence has lasted for longer than the relay has patience. It has to be
// asked every now and then. What the kernel still holds for a slow reader counts as it is delivered.
func (s *silence) lasts() bool {
	r, now := s.relay, time.Now()
	delivered := uint64(r.client.sent.Load()+r.backend.sent.Load()) + sockopt.Inspect(r.client.conn).Acked + sockopt.Inspect(r.backend.conn).Acked
	if delivered != s.delivered {
		s.delivered, s.since = delivered, now
	}
	return now.Sub(s.since) >= r.patience
}

// tick is how often those who wait for a silence to last look.
func (r *relay) tick() time.Duration { return max(r.patience/16, time.Millisecond) }
