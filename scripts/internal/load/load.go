//go:build linux

package load

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A Load is some clients at work, on one thread or with a goroutine each, until they are told to stop.
type Load interface {
	// run works until stopped; it returns an error only when it could not go on. It closes what it
	// opened.
	run(c *conductor) error
	// Score gives what it has done.
	Score() *Counters
}

// Counters are what a load has done. Its thread writes them. The conductor may read Done at any time, and the rest once the thread has
// returned.
type Counters struct {
	Done    atomic.Uint64     // operations, or bytes
	Latency measure.Histogram // of those that ended while it was measured
	Longest time.Duration     // of these, if the row reports it
	Failed  int
	Why     string // the first failure
}

// Score makes a Load of a type that embeds Counters.
func (t *Counters) Score() *Counters { return t }

func (t *Counters) fail(format string, args ...any) {
	if t.Failed++; t.Failed == 1 {
		t.Why = fmt.Sprintf(format, args...)
	}
}

// A conductor tells loads when to measure and when to stop.
type conductor struct {
	measuring atomic.Bool
	stopped   atomic.Bool
}

// A Window is what was seen between two moments while loads were at work.
type Window struct {
	Elapsed  time.Duration
	ProxyCPU time.Duration // zero if there is no proxy
	Clients  time.Duration // processor time of the loads themselves
	Busy     time.Duration // of all processors, by whomever
	Done     []float64     // by load
}

// A moment is everything that a window needs to be read at its beginning and at its end.
type moment struct {
	at      time.Time
	cpu     time.Duration
	clients time.Duration
	machine measure.MachineTime
	done    []uint64
}

func look(pids []int, loads []Load) (moment, error) {
	var m moment
	var err error
	for _, l := range loads {
		m.done = append(m.done, l.Score().Done.Load())
	}
	m.at = time.Now()
	if m.cpu, err = measure.CPUOf(pids); err != nil {
		return m, err
	}
	if m.clients, err = measure.CPUOf([]int{os.Getpid()}); err != nil {
		return m, err
	}
	m.machine, err = measure.ReadMachineTime()
	return m, err
}

// Conduct has the loads work for a while, first unmeasured, then measured. The processes are those of
// the proxy that they work through.
func Conduct(ctx context.Context, pids []int, warm, measured time.Duration, loads ...Load) (_ Window, err error) {
	defer try.Catch(&err)
	c := &conductor{}
	keepProcessors(loopsAmong(loads))
	failed := make(chan error, len(loads))
	var threads sync.WaitGroup
	for _, l := range loads {
		threads.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if err := l.run(c); err != nil {
				failed <- err
			}
		})
	}
	defer threads.Wait()
	defer c.stopped.Store(true)

	sleep := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case err := <-failed:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	try.Do(sleep(warm))
	c.measuring.Store(true)
	before := try.Get(look(pids, loads))
	try.Do(sleep(measured))
	after := try.Get(look(pids, loads))
	c.measuring.Store(false)

	w := Window{Elapsed: after.at.Sub(before.at), ProxyCPU: after.cpu - before.cpu, Clients: after.clients - before.clients}
	w.Busy = measure.BusyBetween(before.machine, after.machine, w.Elapsed)
	for i := range loads {
		w.Done = append(w.Done, float64(after.done[i]-before.done[i]))
	}
	return w, nil
}

// loopsAmong returns how many of the loads are loops.
func loopsAmong(loads []Load) (n int) {
	for _, l := range loads {
		if _, ok := l.(*crowdOfGoroutines); !ok {
			n++
		}
	}
	return n
}

// Complete has a load work until it has done all that it was made for, measured from the beginning.
func Complete(ctx context.Context, l Load) error {
	c := &conductor{}
	keepProcessors(1)
	c.measuring.Store(true)
	defer context.AfterFunc(ctx, func() { c.stopped.Store(true) })()
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		done <- l.run(c)
	}()
	if err := <-done; err != nil {
		return err
	}
	return context.Cause(ctx)
}

// epoch is what times are counted from: reading a clock as a distance is cheap.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }
