package clients

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/scripts/internal/try"
)

// Patience is how long a client waits for an answer. It is longer than any pause of the proxy, because the run checks whether clients are
// served, and not how fast.
const Patience = 15 * time.Second

// Clients connect to the services and check each answer. A client fails if its connection is refused or reset, or if its answer does not
// come, is cut off, or comes from a backend that was in no record.
type Clients struct {
	Services []*Service
	Records  *Records
	Fail     func(error) // called for each client that fails, by any goroutine

	Answered  atomic.Int64 // connections
	Exchanges atomic.Int64 // answers to datagrams
	slowest   atomic.Int64 // of all answers, in nanoseconds
	wg        sync.WaitGroup
}

// Start starts clients: so many TCP connections a second, and so many UDP clients at any time. The func that it returns stops them, and
// waits until the last has its answer.
func (c *Clients) Start(ctx context.Context, connections, flows int, seed uint64) (stop func()) {
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

// Slowest is how long the slowest answer took.
func (c *Clients) Slowest() time.Duration { return time.Duration(c.slowest.Load()) }

// connect opens perSecond TCP connections a second, until ctx ends. It does not wait for one before it opens the next.
func (c *Clients) connect(ctx context.Context, services []*Service, perSecond int, r *rand.Rand) {
	const step = 10 * time.Millisecond
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	began, opened := time.Now(), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		for due := int(time.Since(began).Seconds() * float64(perSecond)); opened < due; opened++ {
			s := services[r.IntN(len(services))]
			c.wg.Go(func() { c.visit(s) })
		}
	}
}

// visit runs one TCP client, and checks its answer.
func (c *Clients) visit(s *Service) {
	begin := time.Now()
	who, err := ask(s.addr())
	end := time.Now()
	for slowest := c.slowest.Load(); int64(end.Sub(begin)) > slowest && !c.slowest.CompareAndSwap(slowest, int64(end.Sub(begin))); {
		slowest = c.slowest.Load()
	}
	if err != nil {
		c.Fail(fmt.Errorf("%s %v: %w, after %v", s.protocol, s.name, err, end.Sub(begin).Round(time.Millisecond)))
		return
	}
	c.Answered.Add(1)
	c.check(s, who, begin, end)
}

// check checks that a backend was in the record. The report of an Update may arrive later than the answer.
func (c *Clients) check(s *Service, who string, begin, end time.Time) {
	for deadline := end.Add(Patience); !c.Records.allowed(s.name, who, begin, end); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.Fail(fmt.Errorf("%s %v: answered by %s, which was in no record between %v and %v",
				s.protocol, s.name, who, begin.Format("15:04:05.000"), end.Format("15:04:05.000")))
			return
		}
	}
}

// ask opens one connection, sends a word and reads until the end.
func ask(addr string) (who string, err error) {
	defer try.Catch(&err)
	const word = "who? "
	conn := try.Get(net.DialTimeout("tcp", addr, Patience))
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(Patience)) // cannot fail on an open socket
	try.Get(io.WriteString(conn, word))
	answer := try.Get(io.ReadAll(conn))
	who, ok := strings.CutPrefix(string(answer), word)
	if !ok || who == "" {
		return "", fmt.Errorf("the answer %q is cut off", answer)
	}
	return who, nil
}
