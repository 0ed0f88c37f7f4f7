package rotation

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"kubeproxy/proxy/balance/positions"
	"kubeproxy/registry"
)

// The hashes are constant for ever: nodes of different builds have to agree on them.

// clientHash returns the hash of a client's address. An IPv4 address is the same in both spellings.
func clientHash(client netip.Addr) uint64 {
	b := client.As16()
	return positions.Mix(positions.Mix(binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
}

// rank returns the place of an address in the order of a client with a hash: the lowest comes first. When an address leaves, only the clients
// move that had it (rendezvous hashing; Thaler and Ravishankar, 1998).
func rank(client uint64, addr netip.Addr) uint64 { return positions.Mix(client ^ clientHash(addr)) }

// endpointHash returns the hash of an endpoint's address.
func endpointHash(endpoint registry.Addr) uint64 {
	if endpoint.Host == "" {
		return positions.Mix(clientHash(endpoint.IP.Addr().Unmap()) + uint64(endpoint.IP.Port()))
	}
	h := fnv.New64a()
	h.Write([]byte(endpoint.Host)) // which always works
	return positions.Mix(h.Sum64() + uint64(endpoint.IP.Port()))
}
