package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"syscall"

	"github.com/google/nftables"

	"kubeproxy/proxy/kernel/forwarding"
	"kubeproxy/registry"
)

// Supported reports whether this system has a kernel that can carry ports.
const Supported = true

// aTableOfOurs is how [openTable] names a table.
var aTableOfOurs = regexp.MustCompile(`^` + tablePrefix + `[0-9]+-[0-9a-f]{8}$`)

// Cleanup deletes the tables of processes that have ended, and the UDP flows to their endpoints, in this network namespace. It returns the
// names of the tables that it deleted, and of those that belong to a process: the kernel lets no other process delete them.
//
// A process of ours cannot leave a table: the kernel deletes it with the socket that owns it. But a ruleset that is saved while the process
// runs has the table, and a program that restores it may make the table without an owner.
func Cleanup() (deleted, owned []string, err error) {
	conn, free, others, err := tablesOfOurs()
	if err != nil {
		return nil, nil, err
	}
	for _, t := range others {
		owned = append(owned, t.Name)
	}
	for _, t := range free {
		if err := deleteTable(conn, t); err != nil {
			return deleted, owned, fmt.Errorf("delete table %s: %w", t.Name, err)
		}
		deleted = append(deleted, t.Name)
	}
	return deleted, owned, nil
}

// flowsOfOthers returns the UDP flows that tables of other processes of ours make; nil: there is no such table.
func flowsOfOthers() (map[flow]bool, error) {
	conn, _, owned, err := tablesOfOurs()
	if err != nil || len(owned) == 0 {
		return nil, err
	}
	return flowsIn(conn, owned...), nil
}

// tablesOfOurs returns the tables that have a name like ours: those that belong to no process, and those that do.
func tablesOfOurs() (conn *nftables.Conn, free, owned []*nftables.Table, err error) {
	if conn, err = nftables.New(); err != nil {
		return nil, nil, nil, fmt.Errorf("netlink: %w", err)
	}
	tables, err := conn.ListTablesOfFamily(nftables.TableFamilyINet)
	switch {
	case errors.Is(err, syscall.EPERM):
		return nil, nil, nil, forwarding.ErrNoCapability
	case err != nil:
		return nil, nil, nil, fmt.Errorf("list tables: %w", err)
	}
	for _, t := range tables {
		switch {
		case !aTableOfOurs.MatchString(t.Name):
		case hasOwner(t):
			owned = append(owned, t)
		default:
			free = append(free, t)
		}
	}
	return conn, free, owned, nil
}

// hasOwner reports whether a table belongs to a socket. The kernel writes flags in the byte order of the network, and package nftables reads them in that
// of the machine: the flag is in the first byte or in the last.
func hasOwner(t *nftables.Table) bool { return t.Flags&(tableFlagOwner|tableFlagOwner<<24) != 0 }

// deleteTable deletes a table, and the UDP flows to its endpoints. Nothing else would end a flow whose client goes on.
func deleteTable(conn *nftables.Conn, t *nftables.Table) error {
	flows := flowsIn(conn, t)
	conn.DelTable(t)
	if err := conn.Flush(); err != nil {
		return err
	}
	for f := range flows {
		if err := deleteFlows(f.id, f.endpoint); err != nil {
			return fmt.Errorf("the flows of %s to %s: %w", f.id, f.endpoint, err)
		}
	}
	return nil
}

// flowsIn returns the UDP flows that tables make, of the maps of endpoints that can be read: a table may have gone, or was made by hand without them.
func flowsIn(conn *nftables.Conn, tables ...*nftables.Table) map[flow]bool {
	flows := make(map[flow]bool)
	for _, t := range tables {
		for i := range 2 * atAddresses {
			p := newPart(t, i)
			elements, _ := conn.GetSetElements(&nftables.Set{Table: t, Name: p.endpoints.Name})
			for _, e := range elements {
				if f, ok := p.flowOf(e); ok && f.id.Protocol == registry.UDP {
					flows[f] = true
				}
			}
		}
	}
	return flows
}

// flowOf reads an element of the map of endpoints.
func (p *part) flowOf(e nftables.SetElement) (flow, bool) {
	length, number := int(addressing[p.family].length), len(e.Key)-4
	if number < 0 || len(e.Val) < length+2 {
		return flow{}, false
	}
	id, ok := portOf(e.Key[:number])
	addr, _ := netip.AddrFromSlice(e.Val[:length])
	return flow{id, netip.AddrPortFrom(addr, binary.BigEndian.Uint16(e.Val[length:]))}, ok
}
