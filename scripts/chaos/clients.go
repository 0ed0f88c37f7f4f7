package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// clients are the load of a run, and the check of each answer.
//
// A few services exist throughout the run. Their endpoints change all the time, and at least one of them always works. So no client of
// theirs may ever fail, whatever happens to etcd. Clients connect over TCP and send datagrams. Each backend answers with its own address,
// and the records decide whether the service had this endpoint at the time.
//
// A client fails if its connection is refused or reset, or if its answer does not
// come, is cut off, or comes from a backend that was in no record.
type clients struct {
	Services []*service
	Records  *records
	Fail     func(error) // called for each client that fails, by any goroutine

	Answered  atomic.Int64 // connections
	Exchanges atomic.Int64 // answers to datagrams
	slowest   atomic.Int64 // of all answers, in nanoseconds
	wg        sync.WaitGroup
}

// Slowest is how long the slowest answer took.
func (c *clients) Slowest() time.Duration { return time.Duration(c.slowest.Load()) }

// check checks that a backend was in the record. The report of an Update may arrive later than the answer.
func (c *clients) check(s *service, who string, begin, end time.Time) {
	for deadline := end.Add(clientTimeout); !c.Records.allowed(s.name, who, begin, end); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fail(fmt.Errorf("%s %v: answered by %s, which was in no record between %v and %v",
				s.protocol, s.name, who, begin.Format("15:04:05.000"), end.Format("15:04:05.000")))
			return
		}
	}
}

// Start starts clients: so many TCP connections a second, and so many UDP clients at any time. The func that it returns stops them, and
// waits until the last has its answer.
func (c *clients) Start(ctx context.Context, connections, flows int, seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	tcp, udp := c.Services[:tcpServices], c.Services[tcpServices:]
	c.wg.Go(func() { c.connect(ctx, tcp, connections, rand.New(rand.NewPCG(seed, 1<<32))) })
	for i := range flows {
		c.wg.Go(func() { c.talk(ctx, udp, rand.New(rand.NewPCG(seed, 1<<32+1+uint64(i)))) })
	}
	return func() {
		cancel()
		c.wg.Wait()
	}
}
