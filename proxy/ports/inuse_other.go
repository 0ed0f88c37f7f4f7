//go:build !linux

package ports

import (
	"net/netip"

	"kubeproxy/registry"
)

// InUse finds out which of some ports cannot be opened at an address.
func InUse(bind netip.Addr, ids []registry.NodePort) map[registry.NodePort]bool {
	return tried(bind, ids)
}

// OwnLocal is not known here.
func OwnLocal() map[registry.NodePort]bool { return nil }
