//go:build !linux

package takeover

import (
	"context"
	"iter"
	"sync/atomic"
)

// supported: descriptors are passed and counted as Linux does it.
const supported = false

// A Listener is where a process waits for its successor. There is none here.
type Listener struct {
	Failures *atomic.Uint64
	Lacks    func() []string
}

// Listen returns an error.
func Listen(string) (*Listener, error) { return nil, errNotHere }

// Close does nothing.
func (*Listener) Close() {}

// Run waits until ctx ends.
func (*Listener) Run(ctx context.Context, _ Predecessor, _ func() []Item) (handedOver bool) {
	<-ctx.Done()
	return false
}

// Waits returns ErrNobody.
func Waits(context.Context, string) error { return ErrNobody }

// Lacks returns ErrNobody.
func Lacks(context.Context, string) ([]string, error) { return nil, ErrNobody }

// A Taken is what a process has taken over. There is none here.
type Taken struct{}

// Take returns an error.
func Take(context.Context, string, Successor, func()) (*Taken, error) { return nil, errNotHere }

// Last yields nothing.
func (*Taken) Last() iter.Seq2[Item, error] { return func(func(Item, error) bool) {} }

// Close does nothing.
func (*Taken) Close() {}
