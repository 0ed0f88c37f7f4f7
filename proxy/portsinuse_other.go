//go:build !linux

package proxy

import (
	"net/netip"

	"kubeproxy/registry"
)

// portsInUse finds out which of some ports cannot be opened at an address.
func portsInUse(bind netip.Addr, ids []registry.NodePort) map[registry.NodePort]bool {
	return triedPorts(bind, ids)
}

// ownLocalPorts is not known here.
func ownLocalPorts() map[registry.NodePort]bool { return nil }
