//go:build !linux

package kernel

import (
	"errors"
	"net/netip"

	"kubeproxy/registry"
)

// Supported reports whether this system has a kernel that can carry ports.
const Supported = false

func openTable(netip.Addr) (table, error) { return nil, errors.ErrUnsupported }

func deleteFlows(registry.ListenerID, netip.AddrPort) error { return errors.ErrUnsupported }

func flowsOfOthers() (map[flow]bool, error) { return nil, nil }

func listFlows() ([]flow, error) { return nil, errors.ErrUnsupported }

// Cleanup does nothing: on this system nothing of a process can be left in the kernel.
func Cleanup() (deleted, owned []string, err error) { return nil, nil, nil }
