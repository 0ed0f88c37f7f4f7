package proxy

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A fakeKeeper keeps ports instead of sockets.
type fakeKeeper struct {
	room    int
	kept    map[registry.ListenerID]bool
	forgot  []registry.ListenerID
	tried   int          // calls of Keep
	fails   func() bool  // whether the keeper does not hear this call of Keep or Forget; nil: it hears all
	keeps   func()       // called during each Keep; may be nil
	flushes atomic.Int64 // how many calls of Flush fail
	flushed func()       // called during each Flush; may be nil
}

var errUnheard = errors.New("the keeper does not hear")

func (k *fakeKeeper) Keep(id registry.ListenerID, _ int) (bool, error) {
	k.tried++
	if k.keeps != nil {
		k.keeps()
	}
	if k.fails != nil && k.fails() {
		return false, errUnheard
	}
	if !k.kept[id] && len(k.kept) >= k.room {
		return false, nil
	}
	k.kept[id] = true
	return true, nil
}

func (k *fakeKeeper) Forget(id registry.ListenerID) error {
	if k.fails != nil && k.fails() {
		return errUnheard
	}
	delete(k.kept, id)
	k.forgot = append(k.forgot, id)
	return nil
}

func (k *fakeKeeper) NoteKept(kept map[registry.ListenerID]struct{}) {
	for id := range kept {
		k.kept[id] = true
	}
}

func (k *fakeKeeper) Flush() error {
	if k.flushed != nil {
		k.flushed()
	}
	if k.flushes.Add(-1) >= 0 {
		return errUnheard
	}
	return nil
}

// A describedEngine is a fakeEngine whose sockets have descriptors.
type describedEngine struct {
	*fakeEngine
	descriptor func() (int, error)
}

func (e *describedEngine) Listen(id registry.ListenerID, owner *atomic.Pointer[engine.Claim], beside ...engine.Socket) (engine.Socket, error) {
	s, err := e.fakeEngine.Listen(id, owner, beside...)
	return describedSocket{s, e}, err
}

type describedSocket struct {
	engine.Socket
	engine *describedEngine
}

func (s describedSocket) Descriptor() (int, error) { return s.engine.descriptor() }

// newKeptProxier returns a proxier with a keeper that has room for so many sockets.
func newKeptProxier(t *testing.T, room int) (*Proxier, *fakeKeeper, *describedEngine) {
	t.Helper()
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { null.Close() })
	p, fake := newFakeProxier()
	e := &describedEngine{fake, func() (int, error) { return int(null.Fd()), nil }}
	k := &fakeKeeper{room: room, kept: make(map[registry.ListenerID]bool)}
	p.engine, p.cfg.Keeper = e, k
	return p, k, e
}

func keptPort(i int) registry.ListenerID {
	return registry.ListenerID{Protocol: registry.TCP, Number: uint16(20000 + i)}
}

// offer begins a take-over.
func offer(p *Proxier) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage = offers
}

// opens and closes say that a service claims a port now, and that it does no more.
func opens(p *Proxier, i int)  { apply(p, service(fmt.Sprint("s", i), 1, keptPort(i))) }
func closes(p *Proxier, i int) { apply(p, service(fmt.Sprint("s", i), 1)) }

func (k *fakeKeeper) wantKept(t *testing.T, p *Proxier, want ...int) {
	t.Helper()
	if err := p.tellKeeper(); err != nil {
		t.Error(err)
	}
	var got []int
	for id := range k.kept {
		got = append(got, int(id.Number)-20000)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the keeper has %v, want %v", got, want)
	}
}

func wantUnkept(t *testing.T, p *Proxier, want int) {
	t.Helper()
	if len(p.unkept) != want || len(p.untold) > 0 {
		t.Errorf("ports %v are not kept and %v not told; want %d and none", p.unkept, p.untold, want)
	}
}

func TestASocketIsKeptOnceThereIsRoom(t *testing.T) {
	p, k, _ := newKeptProxier(t, 1)
	opens(p, 0)
	k.wantKept(t, p, 0)
	opens(p, 1)
	k.wantKept(t, p, 0)
	closes(p, 0)
	k.wantKept(t, p, 1)
	wantUnkept(t, p, 0)
}

// TestOneSocketIsTriedAgainForEachPortThatCloses, however many are not kept.
func TestOneSocketIsTriedAgainForEachPortThatCloses(t *testing.T) {
	p, k, _ := newKeptProxier(t, 2)
	for i := range 2 {
		opens(p, i)
	}
	k.wantKept(t, p, 0, 1)
	for i := range 50 {
		opens(p, 2+i)
	}
	k.wantKept(t, p, 0, 1)
	wantUnkept(t, p, 50)
	for i := range 2 {
		k.tried = 0
		closes(p, i)
		if err := p.tellKeeper(); err != nil {
			t.Error(err)
		}
		if k.tried != 1 || len(k.kept) != 2 {
			t.Errorf("%d sockets were tried, and %d are kept; want 1 and 2", k.tried, len(k.kept))
		}
		wantUnkept(t, p, 49-i)
	}
}

// TestASocketIsKeptOnceThereAreDescriptors for its copy.
func TestASocketIsKeptOnceThereAreDescriptors(t *testing.T) {
	p, k, e := newKeptProxier(t, 2)
	opens(p, 0)
	k.wantKept(t, p, 0)
	plenty := e.descriptor
	e.descriptor = func() (int, error) { return -1, unix.EMFILE }
	opens(p, 1)
	k.wantKept(t, p, 0)
	wantUnkept(t, p, 1)
	e.descriptor = plenty
	closes(p, 0)
	k.wantKept(t, p, 1)
	wantUnkept(t, p, 0)
}

// TestAPortThatIsNotKeptIsForgottenWhenItCloses, also when it does while the keeper says that it has no room.
func TestAPortThatIsNotKeptIsForgottenWhenItCloses(t *testing.T) {
	p, k, _ := newKeptProxier(t, 0)
	opens(p, 0)
	k.wantKept(t, p)
	wantUnkept(t, p, 1)
	closes(p, 0)
	k.wantKept(t, p)
	wantUnkept(t, p, 0)

	opens(p, 1)
	k.keeps = func() { closes(p, 1) }
	k.wantKept(t, p)
	wantUnkept(t, p, 0)
}

// TestASuccessorTellsTheKeeper: after a take-over the predecessor has nothing left to say, also if it was telling the keeper meanwhile.
func TestASuccessorTellsTheKeeper(t *testing.T) {
	p, k, _ := newKeptProxier(t, 0)
	opens(p, 0)
	k.wantKept(t, p)
	wantUnkept(t, p, 1)
	p.stage = offers
	p.Release()
	wantUnkept(t, p, 0)

	p, k, _ = newKeptProxier(t, 0)
	opens(p, 0)
	release := func() {
		offer(p)
		p.Release()
	}
	k.keeps = release
	k.wantKept(t, p)
	wantUnkept(t, p, 0)

	p, k, _ = newKeptProxier(t, 0)
	opens(p, 0)
	release = func() {
		offer(p)
		p.Release()
	}
	k.keeps, k.fails = release, func() bool { return true }
	if err := p.tellKeeper(); err == nil {
		t.Error("no error is returned")
	}
	wantUnkept(t, p, 0)
}

// TestWhatTheKeeperDidNotHearDuringATakeoverThatFailsIsSaidAgain.
func TestWhatTheKeeperDidNotHearDuringATakeoverThatFailsIsSaidAgain(t *testing.T) {
	p, k, _ := newKeptProxier(t, 1)
	opens(p, 0)
	k.fails = func() bool {
		offer(p)
		return true
	}
	if err := p.tellKeeper(); err == nil {
		t.Error("no error is returned")
	}
	if err := p.tellKeeper(); err != nil {
		t.Errorf("while a successor takes over the keeper is told something, and does not hear it: %v", err)
	}
	p.Thaw()
	k.fails = nil
	k.wantKept(t, p, 0)
}

// TestTheKeeperClosesWhatItHasThoughNoPortOpens: it is told again until it hears.
func TestTheKeeperClosesWhatItHasThoughNoPortOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, k, _ := newKeptProxier(t, 1)
		k.flushes.Store(3)
		go p.keep(t.Context())
		time.Sleep(3*keepAgain + time.Second)
		if left := k.flushes.Load(); left >= 0 {
			t.Errorf("it has to be told %d times more", left+1)
		}
	})
}

// TestAPortThatClosesAtTheEndIsForgotten, though the keeper has just been told all, and then the end comes.
func TestAPortThatClosesAtTheEndIsForgotten(t *testing.T) {
	p, k, _ := newKeptProxier(t, 1)
	opens(p, 0)
	ctx, end := context.WithCancel(t.Context())
	k.flushed = func() {
		closes(p, 0)
		end()
	}
	p.keep(ctx)
	if len(k.kept) > 0 {
		t.Errorf("the keeper has %v at the end", k.kept)
	}
}

// TestTheKeeperHasAsManySocketsAsItHasRoomFor, whatever opens and closes, and whatever it does not hear.
func TestTheKeeperHasAsManySocketsAsItHasRoomFor(t *testing.T) {
	const ports, room = 8, 3
	p, k, _ := newKeptProxier(t, room)
	open := make(map[int]bool)
	change := func() {
		if i := rand.IntN(ports); open[i] {
			closes(p, i)
			delete(open, i)
		} else {
			opens(p, i)
			open[i] = true
		}
	}
	k.fails = func() bool { return rand.IntN(4) == 0 }
	k.keeps = func() {
		if rand.IntN(8) == 0 {
			change()
		}
	}
	for range 2000 {
		for range 1 + rand.IntN(3) {
			change()
		}
		for p.tellKeeper() != nil {
		}
		if want := min(len(open), room); len(k.kept) != want {
			t.Fatalf("of the open ports %v the keeper has %v; want %d", open, k.kept, want)
		}
		for id := range k.kept {
			if !open[int(id.Number)-20000] {
				t.Fatalf("of the open ports %v the keeper has %v", open, k.kept)
			}
		}
		wantUnkept(t, p, len(open)-len(k.kept))
	}
}
