package checks

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// A Key is what a target is: all endpoints with the same key share it.
type Key struct {
	Addr              registry.Addr
	Question          Question
	Interval, Timeout time.Duration
	Fall, Rise        int // results in a row that turn it to failing, and to passing
}

// At returns the key for an endpoint at an address.
func (k Key) At(addr registry.Addr) Key {
	if k.Addr = addr; k.Question.Port != 0 {
		k.Addr.IP = netip.AddrPortFrom(addr.IP.Addr(), k.Question.Port)
	}
	return k
}

// A Watcher receives the results of a target's checks. It must not call the checker.
type Watcher interface {
	// Service returns the service on whose account the target is checked. It is always the same.
	Service() registry.Name

	// Checked is called when the target fails, and when it passes again.
	Checked(protocol registry.Protocol, passes bool)

	// Passed is called when a check has passed of a target that does not fail.
	Passed(protocol registry.Protocol)

	// Noted is called when the first check has ended, and when the result of a check is not that of the one before it (it passed, was
	// refused, or failed otherwise), although the target goes on passing or failing. It is also called when the target becomes overdue, and when it no longer is.
	Noted(protocol registry.Protocol)
}

// A Target is one address that is asked one question.
type Target struct {
	Key
	state atomic.Pointer[State] // never nil; the checker's mu is held to replace it

	// Guarded by the checker's mu.
	watchers map[Watcher]struct{} // none: it was given up
	due      entry                // when it is asked next; in the checker's queue, or among those of its share that wait
	expires  entry                // when it is overdue; in no queue while it is
	share    *share               // of the places for checks, while it waits or is being asked

	// Of the goroutine of the checker.
	begun    time.Duration // when it was asked last
	lookedUp bool          // since then its name was looked up, for the present check
	turn     int           // of the addresses of a name: the one that is asked next
	attempt  Attempt
	to       netip.AddrPort
	until    time.Duration // when the attempt has failed

	repeat      time.Duration // when it is asked once more
	descriptors int           // of the attempt
}

// A State is what is known of a target.
type State struct {
	Fails bool
	Known bool      // it has been asked
	Since time.Time // when it began to pass or to fail; zero while it is not known
	Err   string    // of the last check; "" when that passed
	Run   int       // results in a row that speak against Fails

	Refused bool // the last check was: nothing listens there
	Overdue bool // there was no result for two intervals and a timeout, so all this may be out of date
}

// Passed reports whether the address has been asked, does not fail, and its last check passed.
func (s *State) Passed() bool { return s.Known && !s.Fails && s.Err == "" }

// State returns what is known of the target.
func (t *Target) State() State { return *t.state.Load() }

// Settings say how endpoints are checked whose service does not say so itself.
type Settings struct {
	On        bool          // endpoints are checked unless the service says that they are not
	Interval  time.Duration // from the beginning of a check of one address to that of the next
	Timeout   time.Duration // of one check; at most half the interval, and MaxTimeout
	Rise      int           // so many checks in a row have to pass before an address that fails is used again, unless the service says
	Fall      int           // so many in a row have to fail before an address is not used, unless the service says
	SlowStart time.Duration // in which the share of clients grows of an endpoint that passes again; 0: it has all of it at once

	Roots *Authorities // they verify certificates of endpoints; nil: those of the system
}

// Defaults returns the default settings. They check nothing.
func Defaults() Settings {
	return Settings{Interval: 5 * time.Second, Timeout: 2 * time.Second, Rise: 2, Fall: 3}
}

// A Guard knows what may be dialled, and the addresses of names.
type Guard interface {
	Recall(protocol registry.Protocol, addr registry.Addr) (addrs []netip.AddrPort, err error, ok bool)
	Resolve(ctx context.Context, protocol registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error)
}

// Descriptors are those that checks may have, and clients.
type Descriptors interface {
	Take(n int) bool
	Release(n int)
}

// A Checker checks addresses. Any goroutine may call its methods.
type Checker struct {
	Settings
	guard       Guard
	descriptors Descriptors
	wake        chan struct{} // capacity 1: something is due sooner

	Ask func(*Key) error // says in place of a probe why a check fails, nil that it passes; only tests set it, before Run

	lookUps sync.WaitGroup

	mu       sync.Mutex // guards the fields below
	targets  map[Key]*Target
	queue    queue  // those that are not due yet
	shares   shares // those that are due or being asked
	expiring queue  // those that are not overdue

	passed, failed   atomic.Uint64
	changes          lograte.Limiter[change]
	overdues, inTime lograte.Limiter[struct{}] // of lines about checks that are overdue; that none is any more

	// Of Run alone.
	underWay []*Target
	attempts []*Attempt
	poller   Poller

	trusted trusted
}
