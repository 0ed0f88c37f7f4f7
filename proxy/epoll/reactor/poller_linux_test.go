package reactor

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/epoll/slab"
)

func newTestPoller(t *testing.T, blockTime time.Duration) *Poller {
	p, err := NewPoller(blockTime)
	enginetest.Must(t, err)
	t.Cleanup(p.Close)
	return p
}

// runtimeIsTold tells whether the Go runtime would notice an event of p: whether bell watches epfd.
func runtimeIsTold(t *testing.T, p *Poller) bool {
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", p.bell))
	enginetest.Must(t, err)
	return strings.Contains(string(info), "tfd:")
}

// The runtime is told of events only while the poller is parked: otherwise each event would wake up a thread of the runtime as well.
func TestTheRuntimeIsToldOfEventsOnlyWhileThePollerIsParked(t *testing.T) {
	for _, blockTime := range []time.Duration{0, time.Millisecond} {
		t.Run(blockTime.String(), func(t *testing.T) {
			p := newTestPoller(t, blockTime)
			for range 3 { // it parks more than once
				if runtimeIsTold(t, p) {
					t.Fatal("the runtime is told of events although the poller does not wait")
				}
				parked := make(chan bool)
				go func() { parked <- p.Wait(monotonic.Now(), monotonic.Never) }()
				for !runtimeIsTold(t, p) {
					time.Sleep(time.Millisecond)
				}
				p.Wake()
				if !<-parked {
					t.Error("a wait that parked does not say so")
				}
				if len(p.Events()) != 1 || TokenOf(&p.Events()[0]).Kind != Waker {
					t.Errorf("the wait ended with %d events, want the one that woke it", len(p.Events()))
				}
				p.Drain()
			}
		})
	}
}

func TestAPollerDoesNotParkWhileThereIsSomethingToDo(t *testing.T) {
	for _, blockTime := range []time.Duration{0, time.Hour} {
		p := newTestPoller(t, blockTime)
		p.Wake()
		if p.Wait(monotonic.Now(), monotonic.Never) {
			t.Errorf("blocking for %v: the poller parked although an event was there", blockTime)
		}
		if runtimeIsTold(t, p) {
			t.Errorf("blocking for %v: the runtime is told of events", blockTime)
		}
	}
}

// A thread that blocks without the knowledge of the runtime must not hold up those who need all threads to stop.
func TestGarbageIsCollectedWhileAPollerBlocks(t *testing.T) {
	p := newTestPoller(t, time.Hour)
	done := make(chan struct{})
	go func() {
		p.Wait(monotonic.Now(), monotonic.Never)
		close(done)
	}()
	for range 10 {
		runtime.GC()
	}
	p.Wake()
	<-done
}

func TestAWaitEndsWhenItsTimeHasCome(t *testing.T) {
	for _, blockTime := range []time.Duration{0, 10 * time.Millisecond} {
		for _, patience := range []time.Duration{-time.Second, 0, time.Microsecond, 3 * time.Millisecond, 30 * time.Millisecond} {
			p := newTestPoller(t, blockTime)
			now := monotonic.Now()
			p.Wait(now, now+patience)
			if took := monotonic.Now() - now; took < patience {
				t.Errorf("blocking for %v: a wait of %v ended after %v", blockTime, patience, took)
			}
		}
	}
}

func TestATokenIsWhatItWasWhenItComesBack(t *testing.T) {
	for _, want := range []Token{
		{Waker, 0, 0},
		{7, 1<<31 - 1, 1<<slab.GenerationBits - 1},
		{3, 12345, 678},
	} {
		ev := want.event(0)
		if got := TokenOf(&ev); got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
	}
}
