package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"syscall"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

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
	conn, free, owned, err := tablesOfOurs()
	if err != nil {
		return nil, owned, err
	}
	for _, t := range free {
		if err := deleteTable(conn, t); err != nil {
			return deleted, owned, fmt.Errorf("delete table %s: %w", t.Name, err)
		}
		deleted = append(deleted, t.Name)
	}
	return deleted, owned, nil
}

// anotherHasATable reports whether another process of ours has a table.
func anotherHasATable() (bool, error) {
	_, _, owned, err := tablesOfOurs()
	return len(owned) > 0, err
}

// tablesOfOurs returns the tables that have a name like ours and belong to no process, and the names of those that do.
func tablesOfOurs() (conn *nftables.Conn, free []*nftables.Table, owned []string, err error) {
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
		if !aTableOfOurs.MatchString(t.Name) {
			continue
		}
		has, err := hasOwner(t.Name)
		switch {
		case errors.Is(err, syscall.ENOENT): // its process has just ended
		case err != nil:
			return nil, nil, owned, fmt.Errorf("read table %s: %w", t.Name, err)
		case has:
			owned = append(owned, t.Name)
		default:
			free = append(free, t)
		}
	}
	return conn, free, owned, nil
}

// hasOwner reports whether a table belongs to a socket.
func hasOwner(table string) (bool, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return false, err
	}
	defer conn.Close()
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_TABLE_NAME, Data: name(table)}})
	if err != nil {
		return false, err
	}
	answers, err := conn.Execute(nftMessage(unix.NFT_MSG_GETTABLE, 0, attributes))
	if err != nil {
		return false, err
	}
	for _, m := range answers {
		d, err := netlink.NewAttributeDecoder(m.Data[min(4, len(m.Data)):])
		if err != nil {
			return false, err
		}
		for d.ByteOrder = binary.BigEndian; d.Next(); {
			if d.Type() == unix.NFTA_TABLE_FLAGS {
				return d.Uint32()&tableFlagOwner != 0, d.Err()
			}
		}
	}
	return false, errors.New("the kernel does not say whose it is")
}

// deleteTable deletes a table, and the UDP flows to its endpoints. Nothing else would end a flow whose client goes on.
func deleteTable(conn *nftables.Conn, t *nftables.Table) error {
	var flows []flow
	for i := range 2 * atAddresses {
		p := newPart(t, i)
		elements, err := conn.GetSetElements(&nftables.Set{Table: t, Name: p.endpoints.Name})
		if err != nil {
			continue // it was made by hand: there is no such map
		}
		for _, e := range elements {
			if flow, ok := p.flowOf(e); ok && flow.id.Protocol == registry.UDP {
				flows = append(flows, flow)
			}
		}
	}
	conn.DelTable(t)
	if err := conn.Flush(); err != nil {
		return err
	}
	for _, f := range flows {
		if err := deleteFlows(f.id, f.endpoint); err != nil {
			return fmt.Errorf("the flows of %s to %s: %w", f.id, f.endpoint, err)
		}
	}
	return nil
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
