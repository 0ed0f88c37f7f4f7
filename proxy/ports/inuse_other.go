//go:build !linux

package ports

import (
	"net/netip"

	"kubeproxy/registry"
)

// InUse finds out which of some listeners cannot be opened; bind is the address of those of the node.
func InUse(bind netip.Addr, ids, own []registry.ListenerID) map[registry.ListenerID]bool {
	return tried(bind, ids, own)
}

// OwnLocal is not known here.
func OwnLocal() map[registry.ListenerID]bool { return nil }
