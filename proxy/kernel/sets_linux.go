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

	parts   [2 * atAddresses]part // of the node over IPv4, over IPv6, and likewise of addresses
	lastSet uint32

	// Ports and endpoints that are still masqueraded: those that have left since the last tidy, and those that had left before it.
	leaving, left map[flow]struct{}
}

// atAddresses is the index of the first part with the ports of addresses; before it are those of the node.
const atAddresses = 2

// A part of a table has the ports of the node, or those of addresses, for IPv4 or IPv6.
type part struct {
	family           int  // 0: IPv4, 1: IPv6
	addressed        bool // its keys begin with the address of the port
	ports, endpoints *nftables.Set
	senders, hosts   *nftables.Set // UDP clients that are left to the listener: by address and port, and by address alone
	carried          *nftables.Set // ports and endpoints, whose connections are masqueraded
	chains           map[int]bool  // by the number of endpoints
}

// part returns the part for a port with such endpoints.
func (t *nftTable) part(id registry.ListenerID, endpoints []netip.AddrPort) *part {
	if id.Addr.IsValid() {
		return &t.parts[atAddresses+familyOfAddr(id.Addr)]
	}
	return &t.parts[familyOf(endpoints)]
}

// senderSet returns the set for a UDP client of a port that [change.senders] names, and its key there.
func (t *nftTable) senderSet(id registry.ListenerID, client netip.AddrPort) (*nftables.Set, []byte) {
	p := t.part(id, []netip.AddrPort{client})
	if client.Port() == 0 {
		return p.hosts, append(portKey(id), client.Addr().AsSlice()...)
	}
	return p.senders, append(portKey(id), endpointValue(client)...)
}

// portKey is the key of a port: each of its fields begins at a multiple of four bytes.
func portKey(id registry.ListenerID) []byte {
	protocol := byte(unix.IPPROTO_TCP)
	if id.Protocol == registry.UDP {
		protocol = unix.IPPROTO_UDP
	}
	var key []byte
	if id.Addr.IsValid() {
		key = id.Addr.AsSlice()
	}
	return append(key, protocol, 0, 0, 0, byte(id.Number>>8), byte(id.Number), 0, 0)
}

// portOf is the reverse of portKey.
func portOf(key []byte) (id registry.ListenerID, ok bool) {
	if len(key) < 8 {
		return id, false
	}
	if at := key[:len(key)-8]; len(at) > 0 {
		if id.Addr, ok = netip.AddrFromSlice(at); !ok {
			return id, false
		}
	}
	key = key[len(key)-8:]
	id.Number = binary.BigEndian.Uint16(key[4:])
	if key[0] == unix.IPPROTO_UDP {
		id.Protocol = registry.UDP
	}
	return id, true
}

func endpointKey(id registry.ListenerID, number int) []byte {
	return append(portKey(id), native(uint32(number))...)
}

func endpointValue(addr netip.AddrPort) []byte {
	return append(addr.Addr().AsSlice(), byte(addr.Port()>>8), byte(addr.Port()), 0, 0)
}
