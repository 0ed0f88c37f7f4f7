package takeover

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A second successor waits while the first takes over, and then takes over from that one.
func TestASecondSuccessorWaitsItsTurn(t *testing.T) {
	path := place(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	old := newRunning([]Item{{Kind: 1}}, nil)
	oldEnded := make(chan bool, 1)
	go func() {
		handedOver := l.Run(t.Context(), old, func() []Item { return nil })
		l.Close()
		oldEnded <- handedOver
	}()
	second, secondEnded := new(fresh), make(chan error, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	first := new(fresh)
	taken, err := Take(t.Context(), path, first, func() {
		go func() {
			taken, err := Take(t.Context(), path, second, second.open)
			if err == nil {
				taken.Close()
			} else {
				giveUp()
			}
			secondEnded <- err
		}()
		awaitQueued(t, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	next, err := Listen(path) // as the first does, before its predecessor ends
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	taken.Close()
	p := newRunning([]Item{{Kind: 2}}, nil)
	if !next.Run(ctx, p, func() []Item { return nil }) || !<-oldEnded {
		t.Error("one of the two has not handed over")
	}
	if err := <-secondEnded; err != nil {
		t.Errorf("the second successor: %v", err)
	}
	if got, want := fmt.Sprint(sum(second.got), second.calls), fmt.Sprint(sum(p.listeners), []string{"listeners", "open", "adopt", "serve"}); got != want {
		t.Errorf("the second successor got and did %s; want %s", got, want)
	}
}

// awaitQueued waits until a peer waits to be accepted.
func awaitQueued(t *testing.T, l *Listener) {
	t.Helper()
	raw, err := l.socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) {
		if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 30_000); n != 1 {
			t.Errorf("no connection is pending: %v", err)
		}
	}); err != nil {
		t.Error(err)
	}
}

// TestAPingThatWaitsWhileAnotherTakesOverFindsThatOne: else a process that starts meanwhile finds no predecessor.
func TestAPingThatWaitsWhileAnotherTakesOverFindsThatOne(t *testing.T) {
	path := place(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	oldEnded := make(chan bool, 1)
	go func() {
		handedOver := l.Run(t.Context(), newRunning(nil, nil), func() []Item { return nil })
		l.Close()
		oldEnded <- handedOver
	}()
	s, asked := new(fresh), make(chan error, 1)
	taken, err := Take(t.Context(), path, s, func() {
		go func() { asked <- Waits(t.Context(), path) }()
		awaitQueued(t, l)
	})
	if err != nil {
		t.Fatal(err)
	}
	next, err := Listen(path) // before the predecessor ends, as a process does
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	nextEnded := make(chan bool, 1)
	go func() { nextEnded <- next.Run(ctx, newRunning(nil, nil), func() []Item { return nil }) }()
	taken.Close()
	if err := <-asked; err != nil {
		t.Errorf("who asked while another took over is told %q; want that this one waits for its successor", err)
	}
	cancel()
	if !<-oldEnded || <-nextEnded {
		t.Error("the first should have handed over, and the next not")
	}
	next.Close()
}

// TestAPingIsPatientWhileASuccessorIsSlow: who has to wait for its turn would end otherwise.
func TestAPingIsPatientWhileASuccessorIsSlow(t *testing.T) {
	defer func(before time.Duration) { helloWithin = before }(helloWithin)
	helloWithin = 300 * time.Millisecond
	path := place(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p, ended := newRunning(nil, nil), make(chan bool, 1)
	go func() { ended <- l.Run(ctx, p, func() []Item { return nil }) }()
	slow := peer(t, path)
	err = slow.send(frameHello, allFeatures.hello())
	_, e := slow.expect(frameOffer)
	if err := errors.Join(err, e, slow.send(frameAccept, nil), drained(slow)); err != nil {
		t.Fatal(err)
	}
	asked := make(chan error, 1)
	go func() { asked <- Waits(t.Context(), path) }()
	awaitQueued(t, l)
	time.Sleep(3 * helloWithin) // as long as this a process that is idle would not need
	slow.Close()
	if err := <-asked; err != nil {
		t.Errorf("who asked while another was slow is told %q; want that the process waits for its successor", err)
	}
	cancel()
	if <-ended || p.said() != "listeners thaw" {
		t.Errorf("it did %q", p.said())
	}
	l.Close()
}
