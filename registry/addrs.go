package registry

import (
	"encoding/binary"
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"strings"
)

// Addrs is a list of addresses in an order. It never changes, and two that say the same are equal by ==.
// The zero value is the empty list.
//
// It is packed: behind ten thousand services there may be a hundred thousand endpoints, of which one node
// sees clients of a few. An [Addr] takes 48 bytes that the garbage collector has to look through, a
// packed IPv4 address 8 that it need not.
type Addrs struct {
	packed string // each address: two bytes of port, two of length and kind of host, and the host
	n      int
}

// packedIPv4 is what an IPv4 address takes.
const packedIPv4 = 8

// An AddrsBuilder packs addresses one after the other. The zero value is ready.
type AddrsBuilder struct {
	packed strings.Builder
	n      int
}

// Grow makes room for so many more IPv4 addresses; longer addresses need more.
func (b *AddrsBuilder) Grow(n int) { b.packed.Grow(n * packedIPv4) }

// Room returns how many IPv4 addresses have room, those that are there included.
func (b *AddrsBuilder) Room() int { return b.packed.Cap() / packedIPv4 }

// Len returns how many addresses there are.
func (b *AddrsBuilder) Len() int { return b.n }

// Add appends an address.
func (b *AddrsBuilder) Add(a Addr) {
	a.pack(&b.packed)
	b.n++
}

// Addrs returns the list as it is now. It shares memory with the builder, unused room included, until the builder needs more.
func (b *AddrsBuilder) Addrs() Addrs { return Addrs{b.packed.String(), b.n} }

// Compact is Addrs, without the room if more than half of it is unused.
func (b *AddrsBuilder) Compact() Addrs {
	list := b.Addrs()
	if b.packed.Cap() > 2*b.packed.Len() {
		list.packed = strings.Clone(list.packed)
	}
	return list
}

// NewAddrs packs a list. A host may be as long as two bytes can tell of; those of records are much shorter (see [ParseAddr]).
func NewAddrs(list ...Addr) Addrs {
	var b AddrsBuilder
	b.Grow(len(list))
	for _, a := range list {
		b.Add(a)
	}
	return b.Addrs()
}

// pack appends an address to some packed ones. The length of its host is doubled, and one more for a host name.
func (a Addr) pack(to *strings.Builder) {
	buffer := make([]byte, 4, 64)
	length := len(a.Host)<<1 | 1
	if a.Host == "" {
		buffer, _ = a.IP.Addr().AppendBinary(buffer) // which always works
		length = (len(buffer) - 4) << 1
	}
	binary.BigEndian.PutUint16(buffer, a.IP.Port())
	binary.BigEndian.PutUint16(buffer[2:], uint16(length))
	to.Write(buffer)
	to.WriteString(a.Host)
}

// unpack gives the first of some packed addresses, and the others.
func unpack(packed string) (a Addr, rest string) {
	port := uint16(packed[0])<<8 | uint16(packed[1])
	length := uint16(packed[2])<<8 | uint16(packed[3])
	end := 4 + length>>1
	host, rest := packed[4:end], packed[end:]
	if isName := length&1 == 1; isName {
		return Addr{IP: netip.AddrPortFrom(netip.Addr{}, port), Host: host}, rest
	}
	var ip netip.Addr
	switch {
	case len(host) == 4:
		ip = netip.AddrFrom4([4]byte([]byte(host)))
	case len(host) >= 16:
		ip = netip.AddrFrom16([16]byte([]byte(host[:16]))).WithZone(host[16:])
	}
	return Addr{IP: netip.AddrPortFrom(ip, port)}, rest
}

// Len tells how many there are.
func (l Addrs) Len() int { return l.n }

// All gives the addresses in their order. A host name is a part of the list, and keeps all of it in memory.
func (l Addrs) All() iter.Seq[Addr] {
	return func(yield func(Addr) bool) {
		for rest := l.packed; rest != ""; {
			var a Addr
			if a, rest = unpack(rest); !yield(a) {
				return
			}
		}
	}
}

// String lists the addresses as they are dialled.
func (l Addrs) String() string {
	return fmt.Sprint(slices.Collect(l.All()))
}
