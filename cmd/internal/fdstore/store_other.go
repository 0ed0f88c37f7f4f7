//go:build !linux

package fdstore

import (
	"net/netip"

	"kubeproxy/registry"
)

// A Store is none: only Linux has such service managers.
type Store struct{}

// Open returns nil.
func Open(netip.Addr) (*Store, error) { return nil, nil }

// Sockets returns none.
func (*Store) Sockets() map[registry.ListenerID]int { return nil }

// Keep does nothing.
func (*Store) Keep(registry.ListenerID, int) (bool, error) { return false, nil }

// Forget does nothing.
func (*Store) Forget(registry.ListenerID) error { return nil }

// NoteKept does nothing.
func (*Store) NoteKept(map[registry.ListenerID]struct{}) {}

// Flush does nothing.
func (*Store) Flush() error { return nil }
