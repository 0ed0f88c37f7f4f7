package affinity

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const timeout = 3 * time.Hour

// person is a client that differs from the others by n.
func person(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(n >> 8), byte(n)}) }

// begins has client n begin at the endpoint that it has, or else at n, and returns it.
func begins(t *Table[int], of *Clients, n int) int {
	c := t.Client(of, person(n), timeout)
	e, _ := c.Endpoint(func(int) bool { return true }, func() (int, bool) { return n, true })
	c.Reached(e)
	return e
}

// remembered returns which clients a table knows.
func remembered(t *Table[int], of *Clients) map[netip.Addr]bool {
	known := make(map[netip.Addr]bool)
	for k := range t.All(of) {
		known[k.Addr] = true
	}
	return known
}

// isConsistent checks that the lists and the map hold the same entries.
func isConsistent(t *testing.T, table *Table[int], all ...*Clients) {
	t.Helper()
	listed := 0
	for _, of := range all {
		listed += len(remembered(table, of))
	}
	if n := len(table.entries); listed != n || table.recent.Len() != n {
		t.Errorf("%d entries, %d listed in all, and %d by rotation", n, table.recent.Len(), listed)
	}
}

func TestATableIsBoundedAndThoseWhoBeganLongestAgoGoFirst(t *testing.T) {
	table, of, other := NewTable[int](6, 4), new(Clients), new(Clients)
	for n := range 4 {
		begins(table, of, n)
	}
	begins(table, of, 0)
	begins(table, of, 4) // pushes 1 out, as 0 has just come back
	known := remembered(table, of)
	for n, want := range []bool{true, false, true, true, true} {
		if got := known[person(n)]; got != want {
			t.Errorf("client %d is remembered: %v; want %v", n, got, want)
		}
	}
	for n := range 3 { // the third is one too many for all: of all the oldest goes
		begins(table, other, n)
	}
	if known := remembered(table, of); known[person(2)] || !known[person(3)] {
		t.Errorf("of two clients of the other rotation the older is remembered: %v, the younger: %v; want false, true", known[person(2)], known[person(3)])
	}
	for n := range 100 {
		begins(table, other, n)
	}
	if got := len(table.entries); got != 6 {
		t.Errorf("%d entries; want 6", got)
	}
	if got := len(remembered(table, other)); got != 4 {
		t.Errorf("a rotation that many clients come to has %d; want 4", got)
	}
	for n := range 100 {
		table.Adopt(of, Known[int]{Addr: person(n), Endpoint: n, Timeout: timeout})
	}
	if all, own := len(table.entries), len(remembered(table, of)); all != 6 || own != 4 {
		t.Errorf("after clients of another process came there are %d entries, %d of one rotation; want 6 and 4", all, own)
	}
	isConsistent(t, table, of, other)
}

func TestWhatIsOutOfDateIsClearedUpByThoseWhoCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, of := NewTable[int](1000, 1000), new(Clients)
		for n := range 100 {
			begins(table, of, n)
		}
		time.Sleep(timeout)
		for n := range 50 {
			begins(table, of, 1000+n)
		}
		if got := len(table.entries); got != 50 {
			t.Errorf("%d entries; want 50", got)
		}
		isConsistent(t, table, of)
	})
}

func TestAClientOfAnotherProcessIsAdoptedUnlessItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table, of := NewTable[int](10, 10), new(Clients)
		begins(table, of, 1)
		for n := range 3 {
			table.Adopt(of, Known[int]{Addr: person(n), Endpoint: 7, Age: timeout - time.Minute, Timeout: timeout})
		}
		if a, b := begins(table, of, 1), begins(table, of, 2); a != 1 || b != 7 {
			t.Errorf("the client that was known has endpoint %d, the one that was not %d; want 1 and 7", a, b)
		}
		time.Sleep(time.Minute)
		if e := begins(table, of, 0); e != 0 {
			t.Errorf("given %d after its timeout, most of which had passed in the other process", e)
		}
	})
}

func TestForgettingAllClientsOfOneRotationLeavesThoseOfAnother(t *testing.T) {
	table, of, other := NewTable[int](1000, 1000), new(Clients), new(Clients)
	for n := range 100 {
		begins(table, of, n)
		begins(table, other, n)
	}
	table.ForgetAll(of)
	if a, b := len(remembered(table, of)), len(remembered(table, other)); a != 0 || b != 100 {
		t.Errorf("%d and %d clients are remembered; want 0 and 100", a, b)
	}
	isConsistent(t, table, of, other)
}

func TestListsAndMapAgreeUnderConcurrentUse(t *testing.T) {
	table, all := NewTable[int](30, 20), []*Clients{new(Clients), new(Clients)}
	var working sync.WaitGroup
	for seed := range uint64(4) {
		working.Go(func() {
			random := rand.New(rand.NewPCG(seed, 0))
			for range 5000 {
				of := all[random.IntN(len(all))]
				c := table.Client(of, person(random.IntN(40)), timeout)
				again, next := random.IntN(5) > 0, random.IntN(3)
				e, ok := c.Endpoint(func(int) bool { return again }, func() (int, bool) { return next, next > 0 })
				switch {
				case !ok:
				case random.IntN(10) > 0:
					c.Reached(e)
				default:
					c.Forget(e)
				}
				if random.IntN(1000) == 0 {
					table.ForgetAll(of)
				}
			}
		})
	}
	working.Wait()
	isConsistent(t, table, all...)
}

func TestWhoIsReachedAfterItsRotationWasForgottenIsNotRemembered(t *testing.T) {
	table, of := NewTable[int](30, 20), new(Clients)
	c := table.Client(of, person(1), timeout)
	e, _ := c.Endpoint(func(int) bool { return true }, func() (int, bool) { return 1, true })
	table.ForgetAll(of)
	c.Reached(e)
	if known := remembered(table, of); len(known) > 0 {
		t.Errorf("%v are remembered", known)
	}
}
