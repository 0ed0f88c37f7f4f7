//go:build !linux

package portsinuse

import (
	"net/netip"

	"kubeproxy/registry"
)

// Of finds out which of some ports cannot be opened at an address.
func Of(bind netip.Addr, ids []registry.NodePort) map[registry.NodePort]bool {
	return tried(bind, ids)
}

// OwnLocal is not known here.
func OwnLocal() map[registry.NodePort]bool { return nil }
