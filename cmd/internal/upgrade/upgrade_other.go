//go:build !unix

package upgrade

import (
	"context"
	"time"
)

// An Upgrade does nothing: there are no such signals on this system.
type Upgrade struct{}

// On returns one.
func On(string) *Upgrade { return &Upgrade{} }

// Begin returns nil.
func (*Upgrade) Begin() error { return nil }

// Lock does nothing.
func (*Upgrade) Lock() {}

// Unlock does nothing.
func (*Upgrade) Unlock() {}

// Failure returns none.
func (*Upgrade) Failure() (time.Time, error) { return time.Time{}, nil }

// Run returns at once.
func (*Upgrade) Run(context.Context, <-chan struct{}, Manager) error { return nil }
