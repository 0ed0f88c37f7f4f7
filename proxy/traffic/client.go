package traffic

import (
	"errors"
	"net/netip"
	"time"

	"kubeproxy/registry"
)

// A Client is one TCP connection or UDP session as it is at a moment.
type Client struct {
	Listener registry.ListenerID // that the client connected to
	Service  registry.PortKey
	Client   netip.AddrPort
	Via      netip.AddrPort // of the proxy that the client came by, and that said who it is; zero if it came itself
	Endpoint registry.Addr  // that carries it; zero while one is being looked for
	Local    netip.AddrPort // of this proxy, towards that endpoint; zero without one

	Age            time.Duration // since it was accepted
	Idle           time.Duration // since either side sent something; negative if that is not known
	Sent, Received uint64        // bytes to the endpoint, and to the client

	// TCP: the states of the two sockets, as ss(8) names them; "" if they are not known.
	ClientState, EndpointState string
}

// A Selection says which clients are meant. The zero value means all.
type Selection struct {
	Service  registry.Name // zero: of any service
	Client   ClientMatch
	Endpoint registry.AddrMatch
}

// Has reports whether a client is selected. One without an endpoint is not selected by its endpoint.
func (s *Selection) Has(c *Client) bool {
	return (s.Service == registry.Name{} || s.Service == c.Service.Name) && s.Client.Matches(c.Client) &&
		(s.Endpoint.IsAny() || c.Endpoint != registry.Addr{} && s.Endpoint.Matches(c.Endpoint))
}

// A ClientMatch names clients as an operator does: a network, an address, or one port of an address. The zero value matches every client.
type ClientMatch struct {
	network netip.Prefix
	port    uint16 // 0: any
}

// ParseClientMatch reads 10.0.0.7, 10.0.0.0/24, 10.0.0.7:51234 or the same of IPv6.
func ParseClientMatch(text string) (ClientMatch, error) {
	if p, err := netip.ParsePrefix(text); err == nil {
		return ClientMatch{network: p.Masked()}, nil
	}
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap().WithZone("")
		return ClientMatch{network: netip.PrefixFrom(a, a.BitLen())}, nil
	}
	if a, err := netip.ParseAddrPort(text); err == nil && a.Port() != 0 {
		addr := a.Addr().Unmap().WithZone("")
		return ClientMatch{netip.PrefixFrom(addr, addr.BitLen()), a.Port()}, nil
	}
	return ClientMatch{}, errors.New("must be an address, ADDRESS:PORT or a network")
}

// IsAny reports whether m matches every client.
func (m ClientMatch) IsAny() bool { return m == ClientMatch{} }

// Matches reports whether m names a client.
func (m ClientMatch) Matches(client netip.AddrPort) bool {
	return m.IsAny() || m.network.Contains(client.Addr().Unmap().WithZone("")) && (m.port == 0 || m.port == client.Port())
}
