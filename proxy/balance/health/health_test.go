package health

import (
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/registry"
)

// passedOver is how many of a hundred clients are given another endpoint.
func passedOver(h *Health) (n int) {
	for range 100 {
		if h.Skips(registry.TCP, false) {
			n++
		}
	}
	return n
}

func TestTheShareOfAnEndpointGrowsAfterItsChecksPassAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slowStart = time.Minute
		var h Health
		h.Checked(true, slowStart) // which it did before, as far as is known
		if n := passedOver(&h); n != 0 {
			t.Errorf("an endpoint that never failed is skipped by %d of 100 clients", n)
		}
		h.Checked(false, slowStart)
		if n := passedOver(&h); n != 100 {
			t.Errorf("an endpoint whose checks fail is skipped by %d of 100 clients", n)
		}
		h.Checked(true, slowStart)
		for _, step := range []struct{ least, most int }{{100, 100}, {50, 95}, {25, 75}, {5, 50}, {0, 0}, {0, 0}} {
			if n := passedOver(&h); n < step.least || n > step.most {
				t.Errorf("after %v it is skipped by %d of 100 clients; want %d to %d", time.Now(), n, step.least, step.most)
			}
			time.Sleep(slowStart / 4)
		}
	})
}

func TestWithoutASlowStartAnEndpointHasItsShareAtOnce(t *testing.T) {
	var h Health
	h.Failed() // by a client, before the checks noticed
	h.Checked(false, 0)
	h.Checked(true, 0)
	if n := passedOver(&h); n != 0 {
		t.Errorf("it is skipped by %d of 100 clients", n)
	}
}

// An endpoint that fails again while it warms up is not used, and begins anew.
func TestASlowStartBeginsAnewAfterAnotherFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Health
		h.Checked(false, time.Minute)
		h.Checked(true, time.Minute)
		time.Sleep(59 * time.Second)
		h.Checked(false, time.Minute)
		if n := passedOver(&h); n != 100 {
			t.Errorf("it is skipped by %d of 100 clients; want all", n)
		}
		h.Checked(true, time.Minute)
		if n := passedOver(&h); n != 100 {
			t.Errorf("at the beginning it is skipped by %d of 100 clients; want all", n)
		}
	})
}

func TestASuccessorKnowsSinceWhenAnEndpointFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var old, next Health
		since := monotonic.Now()
		old.Failed()
		time.Sleep(time.Hour)
		old.Failed()
		told := old.Export(monotonic.Now())
		next.Adopt(told, monotonic.Now())
		if got := next.FailingSince(); got != since {
			t.Errorf("it fails since %v; want %v", got, since)
		}
		if next.Failed(); next.FailingSince() != since {
			t.Errorf("it has failed once more, and fails since %v; want %v", next.FailingSince(), since)
		}
		var ofEarlier Health
		told.FailingFor = 0
		ofEarlier.Adopt(told, monotonic.Now())
		if got := ofEarlier.FailingSince(); got != monotonic.Now() {
			t.Errorf("an earlier release does not say since when it fails, and it is %v; want now, %v", got, monotonic.Now())
		}
	})
}
