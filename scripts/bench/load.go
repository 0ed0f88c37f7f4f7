//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A load is some clients at work on one thread, until they are told to stop.
type load interface {
	// run works until stopped; it returns an error only when it could not go on. It closes what it
	// opened.
	run(c *conductor) error
	score() *tally
}

// A tally is what a load has done. Whoever holds the thread writes; the conductor reads the count at
// any time, and the rest once the thread has returned.
type tally struct {
	done    atomic.Uint64 // operations, or bytes
	latency histogram     // of those that ended while it was measured
	failed  int
	why     string // the first failure
}

func (t *tally) score() *tally { return t }

func (t *tally) fail(format string, args ...any) {
	if t.failed++; t.failed == 1 {
		t.why = fmt.Sprintf(format, args...)
	}
}

// A conductor tells loads when to measure and when to stop.
type conductor struct {
	measuring atomic.Bool
	stopped   atomic.Bool
}

// A window is what was seen between two moments while loads were at work.
type window struct {
	elapsed  time.Duration
	proxyCPU time.Duration // zero if there is no proxy
	clients  time.Duration // processor time of the loads themselves
	busy     time.Duration // of all processors, by whomever
	done     []float64     // by load
}

// A moment is everything that a window needs to be read at its beginning and at its end.
type moment struct {
	at      time.Time
	cpu     time.Duration
	clients time.Duration
	machine machineTime
	done    []uint64
}

func look(pids []int, loads []load) (moment, error) {
	var m moment
	var err error
	for _, l := range loads {
		m.done = append(m.done, l.score().done.Load())
	}
	m.at = time.Now()
	if m.cpu, err = cpuOf(pids); err != nil {
		return m, err
	}
	if m.clients, err = cpuOf([]int{os.Getpid()}); err != nil {
		return m, err
	}
	m.machine, err = readMachineTime()
	return m, err
}

// conduct has the loads work for a while, first unmeasured, then measured. The processes are those of
// the proxy that they work through.
func conduct(ctx context.Context, pids []int, warm, measured time.Duration, loads ...load) (window, error) {
	c := &conductor{}
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
	if err := sleep(warm); err != nil {
		return window{}, err
	}
	c.measuring.Store(true)
	before, err := look(pids, loads)
	if err != nil {
		return window{}, err
	}
	if err := sleep(measured); err != nil {
		return window{}, err
	}
	after, err := look(pids, loads)
	if err != nil {
		return window{}, err
	}
	c.measuring.Store(false)

	w := window{elapsed: after.at.Sub(before.at), proxyCPU: after.cpu - before.cpu, clients: after.clients - before.clients}
	w.busy = busyBetween(before.machine, after.machine, w.elapsed)
	for i := range loads {
		w.done = append(w.done, float64(after.done[i]-before.done[i]))
	}
	return w, nil
}

// epoch is what times are counted from: reading a clock as a distance is cheap.
var epoch = time.Now()

func now() time.Duration { return time.Since(epoch) }
