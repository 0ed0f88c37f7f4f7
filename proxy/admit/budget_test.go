package admit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestABudgetKeepsAReserve(t *testing.T) {
	for _, c := range []struct {
		limit, clients int
		hands          int64
	}{
		{0, 3, 1},
		{64, 43, 5},
		{256, 171, 21},
		{1024, 896, 32},
		{20000, 19872, 32},
	} {
		b := NewBudget(c.limit)
		if b.Clients != c.clients || b.hands != c.hands {
			t.Errorf("of %d descriptors clients may have %d, and %d be in hand; want %d and %d", c.limit, b.Clients, b.hands, c.clients, c.hands)
		}
		for range c.clients {
			if !b.TryAcquire(1) {
				t.Fatalf("of %d descriptors clients cannot have %d", c.limit, c.clients)
			}
		}
		if b.TryAcquire(1) {
			t.Errorf("of %d descriptors clients can have more than %d", c.limit, c.clients)
		}
	}
}

// Dials beside a silent endpoint, say, leave room for clients of other services.
func TestWhatCanBeDoneWithoutLeavesTheLastDescriptors(t *testing.T) {
	b := NewBudget(512)
	for b.TakeSpare(1) {
	}
	if got, want := b.Clients-int(b.Used.Load()), 48; got != want || b.Last() != want {
		t.Errorf("%d of %d descriptors are left for new clients, want %d", got, b.Clients, want)
	}
	if !b.TryAcquire(2) {
		t.Error("a new client has none of them")
	}
	b.Release(3)
	if b.TakeSpare(2) || !b.TakeSpare(1) {
		t.Error("of 1 that is spare again, 2 were had, or not even 1")
	}
}

func TestThoseWhoWaitForDescriptorsGetThemInTheOrderTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(64)
		for b.TryAcquire(1) {
		}
		var served []int
		for i := range 4 {
			go func() {
				if err := b.Acquire(t.Context(), 2); err != nil {
					t.Error(err)
				}
				served = append(served, i)
			}()
			synctest.Wait()
		}
		for i := range 4 {
			b.Release(1)
			synctest.Wait()
			if b.TryAcquire(1) {
				t.Error("a newcomer was let in before those who wait")
			}
			b.Release(1)
			synctest.Wait()
			if len(served) != i+1 || served[i] != i {
				t.Fatalf("served %v after %d clients have left", served, i+1)
			}
		}
	})
}

func TestOnlySoManyCanWaitForDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBudget(64)
		for b.TryAcquire(1) {
		}
		ctx, cancel := context.WithCancel(t.Context())
		for range b.hands {
			go func() {
				if err := b.Acquire(ctx, 2); !errors.Is(err, context.Canceled) {
					t.Errorf("got %v; want that the context has ended", err)
				}
			}()
		}
		synctest.Wait()
		if err := b.Acquire(ctx, 2); err != ErrNoDescriptors {
			t.Errorf("one more got %v; want %v", err, ErrNoDescriptors)
		}
		cancel()
		synctest.Wait()
		b.Release(2)
		if err := b.Acquire(t.Context(), 2); err != nil {
			t.Errorf("after all have given up: %v", err)
		}
	})
}

// Some descriptors are never listeners': at least one client finds two.
func TestListenersLeaveDescriptorsForClients(t *testing.T) {
	for _, c := range []struct{ limit, listeners int }{{0, 1}, {64, 33}, {256, 129}, {1024, 672}, {20000, 14904}} {
		b := NewBudget(c.limit)
		opened := 0
		for b.TakeForListener() == nil {
			opened++
		}
		if opened != c.listeners || !b.Take(2) {
			t.Errorf("of %d descriptors listeners have %d, want %d; and a client finds none", c.limit, opened, c.listeners)
		}
		b.Release(2)
		for b.Take(1) {
		}
		b.ReleaseOfListener()
		if err := b.TakeForListener(); err != nil {
			t.Errorf("of %d descriptors a listener's is no listener's any more: %v", c.limit, err)
		}
		b.ReleaseOfListener()
		if !b.Take(1) {
			t.Fatal("what a listener gave back is not there")
		}
		if err := b.TakeForListener(); !errors.Is(err, ErrNoDescriptors) {
			t.Errorf("when clients have all there are, a listener is told %v", err)
		}
		if got := DescriptorsFor(c.listeners); listenerShare(got) < c.listeners || got > c.listeners && listenerShare(got-1) >= c.listeners {
			t.Errorf("%d listeners are told to ask for %d descriptors", c.listeners, got)
		}
	}
}
