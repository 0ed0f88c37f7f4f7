package positions

import (
	"encoding/binary"
	"hash/fnv"
	"net/netip"

	"kubeproxy/registry"
)

// The hashes are constant for ever: nodes of different builds have to agree on them.

// ClientHash returns the hash of a client's address. An IPv4 address is the same in both spellings.
func ClientHash(client netip.Addr) uint64 {
	b := client.As16()
	return Mix(Mix(binary.BigEndian.Uint64(b[:8])) ^ binary.BigEndian.Uint64(b[8:]))
}

// Rank returns the place of an address in the order of a client with a hash: the lowest comes first. When an address leaves, only the clients
// move that had it (rendezvous hashing; Thaler and Ravishankar, 1998).
func Rank(client uint64, addr netip.Addr) uint64 { return Mix(client ^ ClientHash(addr)) }

// EndpointHash returns the hash of an endpoint's address.
func EndpointHash(endpoint registry.Addr) uint64 {
	if endpoint.Host == "" {
		return Mix(ClientHash(endpoint.IP.Addr().Unmap()) + uint64(endpoint.IP.Port()))
	}
	h := fnv.New64a()
	h.Write([]byte(endpoint.Host)) // which always works
	return Mix(h.Sum64() + uint64(endpoint.IP.Port()))
}
