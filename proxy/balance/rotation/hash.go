package rotation

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"kubeproxy/registry"
)

// The hashes are constant for ever: nodes of different builds have to agree on them.

// clientHash returns the hash of a client's address. An IPv4 address is the same in both spellings.
func clientHash(client netip.Addr) uint64 {
	b := client.As16()
	return mix(mix(binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
}

// rank returns the place of an address in the order of a client with a hash: the lowest comes first. When an address leaves, only the clients
// move that had it (rendezvous hashing; Thaler and Ravishankar, 1998).
func rank(client uint64, addr netip.Addr) uint64 { return mix(client ^ clientHash(addr)) }

// endpointHash returns the hash of an endpoint's address.
func endpointHash(endpoint registry.Addr) uint64 {
	if endpoint.Host == "" {
		return mix(clientHash(endpoint.IP.Addr().Unmap()) + uint64(endpoint.IP.Port()))
	}
	h := fnv.New64a()
	h.Write([]byte(endpoint.Host)) // which always works
	return mix(h.Sum64() + uint64(endpoint.IP.Port()))
}

// mix spreads each bit over all others: the last step of SplitMix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
