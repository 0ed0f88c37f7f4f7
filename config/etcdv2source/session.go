package etcdv2source

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"kubeproxy/config/remote"
	"kubeproxy/internal/backoff"
	"kubeproxy/registry"
)

// A session is one connection to one member: a list, and the polls that continue it. Its goroutine does the I/O, and hands what it
// learns to the source, one piece after the other.
type session struct {
	conn   *conn
	known  int64 // a list must not be older: at first all that the source knows, then what this session has read
	weak   bool
	cancel context.CancelFunc
	work   sync.WaitGroup
	stood  time.Time // when its list was used; zero before. The source's
}

// A piece is what a session hands over: one of these.
type piece struct {
	session *session
	listing *listing
	event   *response
	head    int64 // etcd has answered a poll, and its index was this
	at      time.Time
	err     error // the session is over
}

// begin starts a session with a member.
func (s *Source) begin(ctx context.Context, member string) *session {
	ctx, cancel := context.WithCancel(ctx)
	// A probe has seen etcd at index heard, which may be later than applied. If a list by quorum is older, etcd went back. Unless heard went
	// back with it, each probe would find so anew, and have everything listed again.
	x := &session{conn: s.cfg.open(ctx, member), known: s.heard, weak: s.cfg.Weak, cancel: cancel}
	x.work.Go(func() {
		err := x.run(ctx, s.pieces)
		select {
		case s.pieces <- piece{session: x, err: err, at: time.Now()}:
		case <-ctx.Done():
		}
	})
	return x
}

// end ends a session and waits for it. Nil has ended.
func (x *session) end() {
	if x == nil {
		return
	}
	x.cancel()
	x.work.Wait()
	x.conn.close()
}

// maxBackoff is the longest pause between two sessions, and between two lists of one.
const maxBackoff = time.Second

// run lists, and then polls until something breaks. What makes it list again within a moment, as deletions of directories do, has it
// wait ever longer: a list costs etcd far more than an event.
func (x *session) run(ctx context.Context, out chan<- piece) error {
	hand := func(p piece) bool {
		p.session, p.at = x, time.Now()
		select {
		case out <- p:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for pauses := (backoff.Pauses{Most: maxBackoff}); ; {
		l, err := x.conn.list(ctx, !x.weak)
		if err == nil && x.weak && l.index < x.known {
			l, err = x.conn.list(ctx, true) // a member that lags: ask them all
		}
		if err != nil {
			return fmt.Errorf("list: %w", err)
		}
		l.atLeast = x.known
		x.known = l.index
		if !hand(piece{listing: &l}) {
			return ctx.Err()
		}
		listed := time.Now()
		err = x.poll(ctx, hand)
		lasted := time.Since(listed) >= maxBackoff
		switch {
		case err == errCleared && x.known == l.index && !lasted:
			return remote.Because(stale, fmt.Errorf("watch: right after a list, %w", err))
		case err != nil && err != errCleared:
			return err
		case lasted:
			pauses.Reset()
		default:
			backoff.Sleep(ctx, pauses.Next())
		}
	}
}

// poll hands on each event after what is known. It returns nil or errCleared when another list has to be read.
func (x *session) poll(ctx context.Context, hand func(piece) bool) error {
	for {
		next := x.known + 1
		p, err := x.conn.wait(ctx, next)
		if err == errCleared {
			return err
		}
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if !hand(piece{head: p.index}) {
			p.resp.Body.Close()
			return ctx.Err()
		}
		ev, err := p.event()
		if err != nil {
			return fmt.Errorf("watch: %w", err)
		}
		if ev.Node.ModifiedIndex < next {
			return remote.Because(wentBack, fmt.Errorf("an event at index %d, where %d or later was asked for", ev.Node.ModifiedIndex, next))
		}
		x.known = ev.Node.ModifiedIndex
		if ev.wholeDirectory() {
			return nil
		}
		if !hand(piece{event: ev}) {
			return ctx.Err()
		}
	}
}

// wholeDirectory reports whether an event says that a directory has changed, without saying what was in it.
func (r *response) wholeDirectory() bool {
	switch {
	case !strings.HasPrefix(r.Node.Key+"/", registry.Prefix):
		return true // of a directory above the prefix
	case !r.Node.Dir:
		return r.PrevNode != nil && r.PrevNode.Dir
	case r.Action == "update" || r.PrevNode == nil && r.Action != "delete" && r.Action != "expire":
		return false // a time to live, or a new and empty directory
	}
	return true
}
