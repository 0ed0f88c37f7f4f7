package epoll

import (
	"context"
	"fmt"

	"kubeproxy/internal/monotonic"
)

// A loop rests at the end of a turn, in the midst of a request that does not end: no system call is under way, and all that the loop
// has read is in a socket, in a pipe, or held. The caller that brought it there may then act in its place.

// Rest brings all loops to rest. Loops that have yet to start will rest as well.
func (e *Engine) Rest(ctx context.Context) error {
	e.resume = make(chan struct{})
	loops := e.running()
	if err := bringToRest(ctx, loops, e.resume); err != nil {
		e.Resume()
		return err
	}
	// A client that one loop has accepted for another may still be among the requests of that.
	for some := true; some; {
		some = false
		for _, l := range loops {
			some = l.requests.MeetAll() || some
		}
	}
	return nil
}

// bringToRest has loops rest until resume is closed, and waits until they do. When ctx ends before, it fails; then resume has to be
// closed.
func bringToRest(ctx context.Context, loops []*loop, resume <-chan struct{}) error {
	var resting []<-chan struct{}
	for _, l := range loops {
		resting = append(resting, l.rest(resume))
	}
	for i, l := range loops {
		select {
		case <-resting[i]:
			l.turn.Now = l.turn.Clock()
			l.requests.AtRest = true
		case <-ctx.Done():
			return fmt.Errorf("event loop %d does not come to rest: %w", l.number, context.Cause(ctx))
		}
	}
	return nil
}

// rest has l rest until resume is closed. What it returns is closed once l rests. To rest is no part of a turn.
func (l *loop) rest(resume <-chan struct{}) <-chan struct{} {
	resting := make(chan struct{})
	var stand func()
	stand = func() {
		if !l.poller.Empty() {
			l.requests.Do(stand) // in a later turn
			return
		}
		l.turns.End(monotonic.Now())
		close(resting)
		<-resume
		l.turn.Begin()
		l.turns.Begin(l.turn.Now)
		l.poller.Refill()
		l.relays.Refill()
	}
	l.requests.Do(func() {
		l.poller.Leave()
		l.cancelReceives(0, stand)
	})
	return resting
}

// cancelReceives cancels what the ring receives, a few in each step, and then calls then in a later turn.
func (l *loop) cancelReceives(from int, then func()) {
	next := l.relays.CancelReceives(from)
	if next < 0 {
		l.requests.Do(then)
		return
	}
	l.requests.Do(func() { l.cancelReceives(next, then) })
}

// Resume has all loops go on.
func (e *Engine) Resume() {
	e.CloseInherited()
	for _, l := range e.running() {
		if l.requests.AtRest { // one that did not come to rest in time goes on, and reads it
			l.requests.AtRest = false
		}
	}
	close(e.resume)
	e.resume = nil
}
