package takeover

import (
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// beginsFirst reports whether a process that finds nobody at path now has to wait for another one.
func beginsFirst(t *testing.T, path string) bool {
	t.Helper()
	r := &claim{path: path}
	defer r.leave()
	c, err := dial(t.Context(), path)
	if err == nil {
		c.Close()
	}
	return errors.Is(err, ErrNobody) && !r.take()
}

// await takes over from the process that comes to listen at path, in the background.
func await(t *testing.T, path string, s *fresh) <-chan error {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		taken, err := Take(t.Context(), path, s, s.open)
		if taken != nil {
			taken.Close()
		}
		ended <- err
	}()
	return ended
}

// listens has a process that has taken its claim listen, and hand over to the process that waits.
func listens(t *testing.T, path string, taken *Taken, ended <-chan error) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken.Close()
	if !l.Run(t.Context(), newRunning([]Item{{Kind: 2}}, nil), func() []Item { return nil }) {
		t.Error("it has not handed over")
	}
	if err := <-ended; err != nil {
		t.Errorf("the process that waited: %v", err)
	}
}

const tookOver = "listeners open adopt serve"

// TestOfTwoProcessesThatFindNobodyOneBeginsAndTheOtherTakesOver, however long the first one needs until it listens.
func TestOfTwoProcessesThatFindNobodyOneBeginsAndTheOtherTakesOver(t *testing.T) {
	path := place(t)
	taken, err := Take(t.Context(), path, new(fresh), nil)
	if !errors.Is(err, ErrNobody) {
		t.Fatal(err)
	}
	if !beginsFirst(t, path) {
		t.Error("another process begins too")
	}
	other := new(fresh)
	listens(t, path, taken, await(t, path, other))
	if got := strings.Join(other.calls, " "); got != tookOver {
		t.Errorf("the other process did %q; want %q", got, tookOver)
	}
}

// TestASuccessorIsWaitedForThoughItsPredecessorIsKilled: it serves what it was given, and who waited for its turn takes over from it.
func TestASuccessorIsWaitedForThoughItsPredecessorIsKilled(t *testing.T) {
	p := play(t)
	killed := make(chan error, 1)
	opens := make(chan struct{})
	go func() {
		c := p.accept()
		defer c.Close()
		_, hello := c.expect(frameHello)
		offered := c.send(frameOffer, offer{descriptors: 1}.payload())
		_, accepted := c.expect(frameAccept)
		_, sent := c.sendItems(each([]Item{{Kind: 1}}))
		<-opens
		p.l.socket.Close()
		killed <- errors.Join(hello, offered, accepted, sent)
		_, _ = c.expect(frameOpened)
	}()
	s, other := new(fresh), new(fresh)
	var ended <-chan error
	taken, err := Take(t.Context(), p.path, s, func() {
		s.open()
		ended = await(t, p.path, other)
		awaitQueued(t, p.l)
		close(opens)
		if err := <-killed; err != nil {
			t.Error(err)
		}
		if !beginsFirst(t, p.path) {
			t.Error("another process begins too")
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	listens(t, p.path, taken, ended)
	for _, s := range []*fresh{s, other} {
		if got := strings.Join(s.calls, " "); got != tookOver {
			t.Errorf("a successor did %q; want %q", got, tookOver)
		}
	}
}

// TestASuccessorThatIsStuckKeepsNobodyFromTakingOver: its predecessor goes on, and has another successor.
func TestASuccessorThatIsStuckKeepsNobodyFromTakingOver(t *testing.T) {
	path, handedOver := serve(t, newRunning(nil, nil))
	stuck(t, path)
	if err := <-await(t, path, new(fresh)); err != nil || !<-handedOver {
		t.Errorf("%v; want that it takes over", err)
	}
}

// stuck has another process that has the claim for path, and does not come to listen, until the test ends.
func stuck(t *testing.T, path string) {
	t.Helper()
	r := &claim{path: path}
	if !r.take() {
		t.Fatal("the claim is taken")
	}
	t.Cleanup(r.leave)
}

// TestAProcessThatIsStuckBeforeItServesKeepsNobodyFromBeginning: its predecessor may have ended long ago, and nobody else would serve for as long as
// it lives.
func TestAProcessThatIsStuckBeforeItServesKeepsNobodyFromBeginning(t *testing.T) {
	path := place(t)
	synctest.Test(t, func(t *testing.T) {
		stuck(t, path)
		began := time.Now()
		taken, err := Take(t.Context(), path, new(fresh), nil)
		if !errors.Is(err, ErrNobody) {
			t.Fatalf("after %v: %v; want that it begins", time.Since(began), err)
		}
		if waited := time.Since(began); waited < answerWithin || waited > answerWithin+time.Second {
			t.Errorf("it begins after %v; want about %v", waited, answerWithin)
		}
		taken.Close()
	})
}

// TestWhoWaitedForAProcessToBeginHasItsWholeTurnThen: that process may need most of it until it listens, and has a successor before this one.
func TestWhoWaitedForAProcessToBeginHasItsWholeTurnThen(t *testing.T) {
	path := place(t)
	synctest.Test(t, func(t *testing.T) {
		stuck(t, path)
		began := make(chan *Listener, 1)
		time.AfterFunc(answerWithin-time.Second, func() {
			l, err := Listen(path)
			if err != nil {
				t.Error(err)
			}
			began <- l
		})
		r := &claim{path: path, turn: time.Now().Add(answerWithin)}
		c, err := r.find(t.Context())
		if l := <-began; l != nil {
			defer l.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if left := time.Until(r.turn); left != answerWithin {
			t.Errorf("of its turn %v are left; want %v", left, answerWithin)
		}
	})
}

// TestAProcessThatFailsToTakeOverIsNotWaitedFor: it ends, but need not have ended yet.
func TestAProcessThatFailsToTakeOverIsNotWaitedFor(t *testing.T) {
	p := play(t)
	go func() {
		c := p.accept()
		defer c.Close()
		_, _ = c.expect(frameHello)
		_ = c.send(frameOffer, offer{descriptors: 1}.payload())
		_, _ = c.expect(frameAccept)
		_, _ = c.sendItems(each(nil))
		_, _ = c.expect(frameOpened)
		_ = c.send(frameRefusal, []byte("not now"))
	}()
	s := new(fresh)
	if _, err := Take(t.Context(), p.path, s, s.open); err == nil || !strings.Contains(err.Error(), "goes on") {
		t.Errorf("%v; want that the other process goes on", err)
	}
	p.l.Close()
	if beginsFirst(t, p.path) {
		t.Error("it is waited for")
	}
}

// TestOnlyOurUserCanHaveThePlace: another one could keep the node from ever being served.
func TestOnlyOurUserCanHaveThePlace(t *testing.T) {
	r := &claim{path: place(t)}
	r.take()
	defer r.leave()
	if info, err := os.Stat(r.path + lockSuffix); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v; want mode 0600", info, err)
	}
}

// TestAProcessBeginsWhereNothingCanBeLocked: better two serve than none.
func TestAProcessBeginsWhereNothingCanBeLocked(t *testing.T) {
	path := place(t)
	if err := os.Mkdir(path+lockSuffix, 0o700); err != nil {
		t.Fatal(err)
	}
	taken, err := Take(t.Context(), path, new(fresh), nil)
	if !errors.Is(err, ErrNobody) {
		t.Fatal(err)
	}
	taken.Close()
}
