package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"
)

// A told process is told to stop while it does something.
type told struct {
	*running
	when func(what string)
}

func (p told) Listeners() ([]Item, error) { p.when("listeners"); return p.running.Listeners() }
func (p told) Lend(sessions bool, send func([]Item) error) (bool, error) {
	p.when("lend")
	return p.running.Lend(sessions, send)
}
func (p told) Freeze(ctx context.Context) (iter.Seq2[Item, error], error) {
	p.when("freeze")
	items, err := p.running.Freeze(ctx)
	return items, errors.Join(err, ctx.Err())
}
func (p told) Release() { p.when("release"); p.running.Release() }

// A telling process has its predecessor be told.
type telling struct {
	*fresh
	when func(what string)
}

func (s telling) AdoptListeners(items []Item) (bool, error) {
	s.when("adopt listeners")
	return s.fresh.AdoptListeners(items)
}
func (s telling) Borrow(items iter.Seq2[Item, error]) error {
	s.when("borrow")
	return s.fresh.Borrow(items)
}
func (s telling) Adopt(items iter.Seq2[Item, error]) error {
	s.when("before adopt")
	err := s.fresh.Adopt(items)
	s.when("after adopt")
	return err
}
func (s telling) Serve() { s.when("serve"); s.fresh.Serve() }
func (s telling) open()  { s.when("open"); s.fresh.open() }

// TestAPredecessorThatIsToldToStopHandsOverAllTheSame, at whichever step of a take-over it is told.
func TestAPredecessorThatIsToldToStopHandsOverAllTheSame(t *testing.T) {
	for _, step := range []string{
		"listeners", "adopt listeners", "open", "lend", "borrow", "freeze", "before adopt", "after adopt", "serve", "release", "last",
	} {
		t.Run(step, func(t *testing.T) {
			one := []Item{{Kind: 2, Descriptors: descriptors(t, 2)}}
			p := newRunning([]Item{{Kind: 1, Descriptors: descriptors(t, 1)}}, slices.Repeat(one, 500))
			p.lent = [][]Item{one, one}
			ctx, stop := context.WithCancel(t.Context())
			when := func(what string) {
				if what == step {
					stop()
				}
			}
			path, handedOver := serveUntil(ctx, t, stopWithin, told{p, when}, Item{Kind: 6})
			s := telling{new(fresh), when}
			taken, err := Take(t.Context(), path, s, s.open)
			if err != nil {
				t.Fatalf("%v; the predecessor did %q", err, p.said())
			}
			when("last")
			last := 0
			for _, err := range taken.Last() {
				if err != nil {
					t.Error(err)
				}
				last++
			}
			taken.Close()
			for _, it := range s.got {
				closeAll(it.Descriptors)
			}
			if !<-handedOver || p.said() != "listeners lend lend freeze release" {
				t.Errorf("the predecessor did %q", p.said())
			}
			if got, want := strings.Join(s.calls, " "), "listeners open borrow borrow adopt serve"; got != want || last != 1 {
				t.Errorf("the successor did %q, and was told %d last items; want %q, and one", got, last, want)
			}
		})
	}
}

// TestAPredecessorThatWasToldToStopEarlierLeavesItsSuccessorAlone: nothing has begun, and the successor need not end.
func TestAPredecessorThatWasToldToStopEarlierLeavesItsSuccessorAlone(t *testing.T) {
	t.Run("before hello", func(t *testing.T) {
		p := newRunning(nil, nil)
		ctx, stop := context.WithCancel(t.Context())
		path, handedOver := serveUntil(ctx, t, stopWithin, p)
		silent, waiting := peer(t, path), peer(t, path)
		stop()
		if <-handedOver {
			t.Error("it says that it has handed over")
		}
		for _, c := range []*conn{silent, waiting} {
			if _, err := c.receive(); !gone(err) {
				t.Errorf("a successor that has yet to say hello is told %v", err)
			}
		}
		if p.said() != "" {
			t.Errorf("it did %q", p.said())
		}
	})
	t.Run("after the proxy", func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		p := refusing{newRunning(nil, nil), stop}
		path, handedOver := serveUntil(ctx, t, stopWithin, p)
		s := new(fresh)
		taken, err := Take(t.Context(), path, s, s.open)
		if !errors.Is(err, ErrNobody) || len(s.calls) > 0 {
			t.Fatalf("%v after %q; want that nobody is there", err, s.calls)
		}
		taken.Close()
		if <-handedOver {
			t.Error("it says that it has handed over")
		}
	})
}

// A refusing process has stopped its proxy by the time it is asked for listeners.
type refusing struct {
	*running
	stop func()
}

func (p refusing) Listeners() ([]Item, error) {
	p.stop()
	return nil, errors.New("the proxy stops")
}

// TestAStuckSuccessorDoesNotKeepItsPredecessorFromStopping: it gives up within a few seconds, and says so before anything moves again.
func TestAStuckSuccessorDoesNotKeepItsPredecessorFromStopping(t *testing.T) {
	p := &thawing{running: newRunning([]Item{{Kind: 1}}, nil)}
	ctx, stop := context.WithCancel(t.Context())
	path, handedOver := serveUntil(ctx, t, 50*time.Millisecond, p)
	c := peer(t, path)
	p.before = func() {
		if _, err := c.receive(); err == nil || !strings.Contains(err.Error(), errStopping.Error()) {
			t.Errorf("when it thaws it has said %v; want %v", err, errStopping)
		}
	}
	err := c.send(frameHello, greeting())
	_, e := c.expect(frameOffer)
	if err := errors.Join(err, e, c.send(frameAccept, nil), drained(c)); err != nil { // it would wait for openWithin now
		t.Fatal(err)
	}
	began := time.Now()
	stop()
	if <-handedOver || p.said() != "listeners thaw" {
		t.Errorf("it did %q", p.said())
	}
	if took := time.Since(began); took > openWithin/2 {
		t.Errorf("it stopped after %v", took)
	}
	if err := c.send(frameOpened, nil); !gone(err) {
		t.Errorf("then a successor can go on: %v", err)
	}
}

type thawing struct {
	*running
	before func()
}

func (p *thawing) Thaw() { p.before(); p.running.Thaw() }

// TestARefusalIsHeardAfterAllThatWasNotRead: a successor that is stuck has as much to read as the kernel lets wait.
func TestARefusalIsHeardAfterAllThatWasNotRead(t *testing.T) {
	old, next := pair(t)
	old.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	frames := 0
	for old.send(frameItems, make([]byte, 100)) == nil {
		frames++
	}
	old.refuse(errStuck)
	old.Close()
	next.within(30 * time.Second)
	for range frames {
		if _, err := next.receive(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := next.receive(); err == nil || !strings.Contains(fmt.Sprint(err), errStuck.Error()) || errors.Is(err, io.EOF) {
		t.Errorf("after %d frames it hears %v; want %v", frames, err, errStuck)
	}
}
