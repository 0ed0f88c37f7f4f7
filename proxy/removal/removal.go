package removal

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Lifetime is the time for which an endpoint is in its rotation, or a service on its port. A TCP
// connection belongs to the two lifetimes that it began under, and a [Policy] says whether it
// may outlive them. An endpoint or a service that is removed and put back has a new lifetime: the connections of
// the old one go as they would have gone. A record that merely changes begins no lifetime. The zero value is a
// lifetime that has begun. Any goroutine may call its methods.
type Lifetime struct {
	over  atomic.Bool
	ended atomic.Int64 // when, by package monotonic

	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	close context.CancelCauseFunc
}

// IsOver reports whether the endpoint or the service was removed. Of no lifetime, it was not.
func (t *Lifetime) IsOver() bool { return t != nil && t.over.Load() }

// Context ends, with a cause, when the connections of the lifetime are to be closed: never where they may
// go on. So there is nothing to do for each connection where nothing is to happen to it. The context is made by
// the first call: a record may hold a hundred thousand endpoints.
func (t *Lifetime) Context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.close = context.WithCancelCause(context.Background())
	}
	return t.ctx
}

func (t *Lifetime) cut(why traffic.Reason) {
	t.Context()
	t.close(cut(why))
}

// Ago returns how long ago the endpoint or the service was removed; 0 if it was not. It may be called on no lifetime.
func (t *Lifetime) Ago() time.Duration {
	if !t.IsOver() {
		return 0
	}
	return max(1, monotonic.Now()-time.Duration(t.ended.Load()))
}

// End notes that the endpoint or the service was removed so long ago, and sees to it that the connections of the
// lifetime are told when their time is up.
func (t *Lifetime) End(then Policy, why traffic.Reason, ago time.Duration) {
	t.ended.Store(int64(monotonic.Now() - ago))
	t.over.Store(true)
	switch {
	case !then.Close:
	case then.After > ago:
		time.AfterFunc(then.After-ago, func() { t.cut(why) })
	default:
		t.cut(why)
	}
}

// A cut is the cause of a context whose end ends connections.
type cut traffic.Reason

// Error returns the reason, as logs spell it.
func (c cut) Error() string { return traffic.Reason(c).String() }

// ReasonOf tells why a context ended that was cut. One that ended without a cause belongs to an engine,
// and these end only for a shutdown.
func ReasonOf(ctx context.Context) traffic.Reason {
	if c, ok := context.Cause(ctx).(cut); ok {
		return traffic.Reason(c)
	}
	return traffic.Shutdown
}

// A Policy says what becomes of a TCP connection when its endpoint leaves the service, or the service
// leaves the port. The zero value lets it go on for as long as it likes. (A UDP session moves to
// another endpoint, or ends with its service.)
type Policy struct {
	Close bool          // close it
	After time.Duration // so long after the removal
}

// PolicyOf returns what the record of a service says, or else the policy of the node.
func PolicyOf(said registry.Removal, node Policy) Policy {
	if said.Rule == registry.RemovalUnsaid {
		return node
	}
	return Policy{Close: said.Rule == registry.RemovalClose, After: said.After}
}
