//go:build !linux

package proxy

import "net/netip"

// portsInUse finds out which of some ports cannot be opened at an address.
func portsInUse(bind netip.Addr, ids []portID) map[portID]bool { return triedPorts(bind, ids) }

// ownLocalPorts is not known here.
func ownLocalPorts() map[portID]bool { return nil }
