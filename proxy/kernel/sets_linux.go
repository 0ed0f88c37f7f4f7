package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kubeproxy/registry"
)

// An nftTable is our table in the kernel, and the socket that owns it. One goroutine at a time calls its methods. After an error only close
// may be called: what the kernel has is not known any more.
type nftTable struct {
	conn *nftables.Conn
	raw  *netlink.Conn // the socket of conn, for the messages that package nftables does not know
	nft  *nftables.Table

	families [2]family // IPv4, IPv6
	carried  *nftables.Set
	has      map[registry.ListenerID]bool // what carried holds
}

// A family is the part of a table for IPv4 or IPv6.
type family struct {
	ports, endpoints *nftables.Set
	senders, hosts   *nftables.Set // UDP clients that are left to the listener: by address and port, and by address alone
	chains           map[int]bool  // by the number of endpoints
}

// senderSet returns the set for a UDP client of a port that [change.senders] names, and its key there.
func (t *nftTable) senderSet(id registry.ListenerID, client netip.AddrPort) (*nftables.Set, []byte) {
	f := &t.families[familyOf([]netip.AddrPort{client})]
	key := append(portKey(id), client.Addr().AsSlice()...)
	if client.Port() == 0 {
		return f.hosts, key
	}
	return f.senders, append(key, byte(client.Port()>>8), byte(client.Port()), 0, 0)
}

// portKey is the key of a port: each of its fields begins at a multiple of four bytes.
func portKey(id registry.ListenerID) []byte {
	protocol := byte(unix.IPPROTO_TCP)
	if id.Protocol == registry.UDP {
		protocol = unix.IPPROTO_UDP
	}
	return []byte{protocol, 0, 0, 0, byte(id.Number >> 8), byte(id.Number), 0, 0}
}

// portOf is the reverse of portKey.
func portOf(key []byte) (id registry.ListenerID, ok bool) {
	if len(key) != 8 {
		return id, false
	}
	id.Number = binary.BigEndian.Uint16(key[4:])
	if key[0] == unix.IPPROTO_UDP {
		id.Protocol = registry.UDP
	}
	return id, true
}

func endpointKey(id registry.ListenerID, number int) []byte {
	return binary.NativeEndian.AppendUint32(portKey(id), uint32(number))
}

func endpointValue(addr netip.AddrPort) []byte {
	return append(addr.Addr().AsSlice(), byte(addr.Port()>>8), byte(addr.Port()), 0, 0)
}
