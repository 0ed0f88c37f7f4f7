package proxy

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// A tenure is the time for which an endpoint is in its rotation, or a service on its port. A TCP
// connection belongs to the two tenures that it began under, and [Config].OnRemoval says whether it
// may outlive them. The rule knows no way back: an endpoint that is removed and put back, or a
// service, has a new tenure, and the connections of the old one go as they would have gone. A record
// that merely changes begins no tenure.
type tenure struct {
	over atomic.Bool

	mu    sync.Mutex // guards the fields below
	ctx   context.Context
	close context.CancelCauseFunc
}

// isOver reports whether the endpoint or the service was removed. Of no tenure, it was not.
func (t *tenure) isOver() bool { return t != nil && t.over.Load() }

// context ends, with a cause, when the connections of the tenure are to be closed: never where they may
// go on. So there is nothing to do for each connection where nothing is to happen to it, and nothing is
// made for each endpoint before somebody asks: a record may hold a hundred thousand.
func (t *tenure) context() context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ctx == nil {
		t.ctx, t.close = context.WithCancelCause(context.Background())
	}
	return t.ctx
}

func (t *tenure) cut(why Reason) {
	t.context()
	t.close(cut(why))
}

// end notes that the endpoint or the service was removed, and sees to it that the connections of the
// tenure are told when their time is up.
func (t *tenure) end(then Removal, why Reason) {
	t.over.Store(true)
	switch {
	case !then.Close:
	case then.After > 0:
		time.AfterFunc(then.After, func() { t.cut(why) })
	default:
		t.cut(why)
	}
}

// A cut is the cause of a context whose end ends connections.
type cut Reason

func (c cut) Error() string { return Reason(c).String() }

// reasonOf tells why a context ended that was cut. One that ended without a cause belongs to an engine,
// and these end only for a shutdown.
func reasonOf(ctx context.Context) Reason {
	if c, ok := context.Cause(ctx).(cut); ok {
		return Reason(c)
	}
	return Shutdown
}
