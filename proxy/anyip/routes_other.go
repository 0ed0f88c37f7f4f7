//go:build !linux

package anyip

import (
	"context"
	"errors"
	"net/netip"
)

// Routes are none: this system has no routes of that kind.
type Routes struct{}

func open(ranges []netip.Prefix, _ string) (*Routes, error) {
	if len(ranges) == 0 {
		return nil, nil
	}
	return nil, errors.ErrUnsupported
}

// Install does nothing.
func (*Routes) Install() error { return nil }

// Prune does nothing.
func (*Routes) Prune() error { return nil }

// Guard does nothing.
func (*Routes) Guard(context.Context) error { return nil }

// Problem returns nil.
func (*Routes) Problem() error { return nil }

// Missing returns 0.
func (*Routes) Missing() int { return 0 }

// Restored returns 0.
func (*Routes) Restored() uint64 { return 0 }

// Remove does nothing.
func (*Routes) Remove() error { return nil }

// Withdraw does nothing.
func (*Routes) Withdraw() error { return nil }

// Cleanup finds nothing.
func Cleanup() ([]netip.Prefix, error) { return nil, nil }
