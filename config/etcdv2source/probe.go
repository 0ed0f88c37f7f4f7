package etcdv2source

import (
	"context"
	"errors"
	"fmt"
	"kubeproxy/config/remote"
	"sync"
	"time"
)

// A probe finds out, every probe period, up to which moment everything is known, and whether a watch that says nothing is idle or dead.
//
//	tick ─▶ which index has etcd reached? ──the known one──▶ up to date
//	                       │ a later one
//	                       ▼
//	        a poll from the known index on ──nothing comes──▶ up to date: others have written elsewhere
//	                       │ an event
//	                       ▼
//	        tick: has the watch told of it? ──no──▶ the watch is dead
//
// The two questions go over one connection: a member that has answered the first by quorum knows all that the second is about.
type probe struct {
	ticker  *time.Ticker
	answers chan answer
	busy    bool
	work    sync.WaitGroup

	conn   *conn // nil: the next question makes one
	cancel context.CancelFunc
	member int
	failed int // questions in a row that were not answered

	doubt     int64 // the watch must come to this index; 0: there is no doubt
	doubtedAt time.Time
}

// An answer is what came of a question.
type answer struct {
	asked   time.Time
	known   int64 // the index that was known then
	reached int64 // the index of etcd at some moment after asked

	polled  bool
	cleared bool  // etcd has forgotten the events after the known index
	event   int64 // the index of the first event; 0: there was none
	quiet   int64 // then there was none up to this index
	err     error
}

func (p *probe) init(period time.Duration) {
	p.ticker, p.answers = time.NewTicker(period), make(chan answer)
}

// stop ends what is under way.
func (p *probe) stop() {
	p.ticker.Stop()
	p.hangUp()
	p.work.Wait()
}

func (p *probe) hangUp() {
	if p.conn != nil {
		p.cancel()
		p.conn.close()
		p.conn = nil
	}
}

// tick begins a question, unless one is under way, and judges a watch that is in doubt.
func (s *Source) tick(ctx context.Context) {
	p := &s.probe
	if s.current == nil || s.heard >= p.doubt || s.current.stood.After(p.doubtedAt) {
		p.doubt = 0
	}
	if s.current == nil {
		return
	}
	if p.doubt > 0 && time.Since(p.doubtedAt) >= s.cfg.ProbePeriod {
		err := fmt.Errorf("watch dead: it stopped at index %d, and etcd has an event at %d", s.heard, p.doubt)
		p.doubt = 0
		s.abandon(remote.Because(stale, err))
		return
	}
	if !p.busy {
		s.ask(ctx, s.heard)
	}
}

// ask puts both questions to a member; the second one only if it is needed.
func (s *Source) ask(ctx context.Context, known int64) {
	p := &s.probe
	if p.conn == nil {
		p.member = (p.member + 1) % len(s.cfg.Endpoints)
		var life context.Context
		life, p.cancel = context.WithCancel(ctx)
		p.conn = s.cfg.open(life, s.cfg.Endpoints[p.member])
	}
	c := p.conn
	p.busy = true
	p.work.Go(func() {
		a := c.question(ctx, known)
		select {
		case p.answers <- a:
		case <-ctx.Done():
		}
	})
}

// question asks for the index of etcd and, if it is not the known one, whether something below the prefix happened since.
func (c *conn) question(ctx context.Context, known int64) (a answer) {
	period := c.dialer.ProbePeriod
	a.asked, a.known = time.Now(), known
	timeout := min(2*period, c.dialer.RequestTimeout)
	limited, cancel := context.WithTimeoutCause(ctx, timeout, remote.Because(silent, fmt.Errorf("no answer for %v", timeout)))
	defer cancel()
	if a.reached, a.err = c.reached(limited); a.err != nil || a.reached <= known {
		return a
	}
	a.polled = true
	errQuiet := errors.New("quiet")
	limited, cancel = context.WithTimeoutCause(ctx, timeout+period, errQuiet)
	defer cancel()
	poll, err := c.wait(limited, known+1)
	switch {
	case err == errCleared:
		a.cleared = true
		return a
	case err != nil:
		a.err = err
		return a
	}
	ev, err := poll.event()
	switch {
	case err == nil:
		a.event = ev.Node.ModifiedIndex
	case errors.Is(err, errQuiet):
		a.quiet = poll.index
	default:
		a.err = err
	}
	return a
}

// probed handles an answer.
func (s *Source) probed(ctx context.Context, a answer) {
	p := &s.probe
	p.busy = false
	if a.err != nil || a.polled {
		p.hangUp() // a poll leaves nothing behind that could be used again
	}
	if s.current == nil || s.current.stood.After(a.asked) {
		return
	}
	if a.err != nil {
		// That says nothing against the watch, which may be sound. It is kept, and another member asked at the next tick.
		if p.failed++; p.failed >= len(s.cfg.Endpoints) && time.Since(s.log.Status().Heard) >= s.cfg.ProbePeriod {
			s.trouble(fmt.Errorf("watch silent, read failed: %w", a.err))
		}
		return
	}
	p.failed = 0
	s.well()
	switch {
	case a.reached < a.known:
		s.abandon(remote.Because(wentBack, fmt.Errorf("it went back from index %d to %d: restored or wiped?", a.known, a.reached)))
		return
	case a.cleared:
		if s.next == nil {
			s.open(ctx) // too many others have written: only a list can tell
		}
		return
	case a.event > s.heard:
		if p.doubt == 0 { // else the watch has its time already
			p.doubt, p.doubtedAt = a.event, time.Now()
		}
		return
	case a.quiet > 0:
		s.heard = max(s.heard, a.quiet)
	}
	if s.heard >= a.reached {
		s.upToDate(a.asked)
	}
}
