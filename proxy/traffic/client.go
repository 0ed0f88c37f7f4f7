package traffic

import (
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
	Client   registry.ClientMatch
	Endpoint registry.AddrMatch
}

// Has reports whether a client is selected. One without an endpoint is not selected by its endpoint.
func (s *Selection) Has(c *Client) bool {
	return (s.Service == registry.Name{} || s.Service == c.Service.Name) && s.Client.Matches(c.Client) &&
		(s.Endpoint.IsAny() || c.Endpoint != registry.Addr{} && s.Endpoint.Matches(c.Endpoint))
}
