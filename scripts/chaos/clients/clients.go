package clients

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

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

// Slowest is how long the slowest answer took.
func (c *Clients) Slowest() time.Duration { return time.Duration(c.slowest.Load()) }

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
