package proxytest

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// Patience is how long one step of a test may take: far longer than it should on a busy machine.
var Patience = 30 * time.Second

// Eventually waits until is returns true, and fails the test when it does not within [Patience].
// The message says what was waited for.
func Eventually(t testing.TB, is func() bool, format string, args ...any) {
	t.Helper()
	if !Becomes(is) {
		t.Fatalf("still not so after %v: %s", Patience, fmt.Sprintf(format, args...))
	}
}

// Becomes waits until is returns true, and reports whether it did within [Patience]. It is for
// goroutines other than the test's own, which must not end the test.
func Becomes(is func() bool) bool {
	pause := time.Millisecond
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(pause) {
		if is() {
			return true
		}
		pause = min(2*pause, 20*time.Millisecond)
	}
	return is()
}

// Settled waits until value has stayed the same for a while, and returns it: the only way to tell
// that something has come to a halt that will not say so.
func Settled(t testing.TB, value func() int64, still time.Duration) int64 {
	t.Helper()
	last, since := value(), time.Now()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if now := value(); now != last {
			last, since = now, time.Now()
		} else if time.Since(since) >= still {
			return last
		}
	}
	t.Fatalf("did not come to a halt within %v; at %d", Patience, last)
	return last
}

// Punctually runs a test of what must not be silent for as long as limit, and calls beat with each sign of life. A machine that is late makes a silence
// itself. A try that failed behind one says nothing, and is made again.
func Punctually(t testing.TB, limit time.Duration, try func(beat func()) error) {
	t.Helper()
	const tries = 5
	var err error
	for range tries {
		var mu sync.Mutex // guards the next two
		last, longest := time.Now(), time.Duration(0)
		beat := func() {
			mu.Lock()
			defer mu.Unlock()
			now := time.Now()
			last, longest = now, max(longest, now.Sub(last))
		}
		if err = try(beat); err == nil {
			return
		}
		beat()
		mu.Lock()
		silence := longest
		mu.Unlock()
		if silence < limit {
			t.Error(err)
			return
		}
		t.Logf("behind a silence of %v: %v", silence, err)
	}
	t.Errorf("it failed %d times, each time behind a silence of %v or more: %v", tries, limit, err)
}

// Receive returns the next value of c, and fails the test when none comes within [Patience].
func Receive[T any](t testing.TB, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Patience):
		t.Fatalf("still waiting after %v for %s", Patience, what)
		panic("unreachable")
	}
}
