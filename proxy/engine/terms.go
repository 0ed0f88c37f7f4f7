package engine

import (
	"cmp"
	"time"

	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
)

// What counts for the clients of a service: the term of its record, or else the flag of the node. They are asked for each client, so a change
// of either counts for the next one.

// ConnectionsOf returns how many TCP connections each port of a service may have.
func (c *Config) ConnectionsOf(t *registry.Terms) int64 {
	return int64(cmp.Or(t.Limits.Connections, c.MaxConnectionsPerService))
}

// SessionsOf returns how many UDP sessions each port of a service may have.
func (c *Config) SessionsOf(t *registry.Terms) int {
	return cmp.Or(t.Limits.Connections, c.MaxUDPSessionsPerService)
}

// PerClientOf returns how many connections or sessions one client address may have of each port of a service; 0: any number.
func (c *Config) PerClientOf(t *registry.Terms) int {
	return max(0, cmp.Or(t.Limits.PerClient, c.MaxConnectionsPerClient))
}

// IdleTimeoutOf returns for how long a TCP connection may be silent; 0: for ever.
func (c *Config) IdleTimeoutOf(t *registry.Terms) time.Duration {
	return max(0, cmp.Or(t.Timeouts.Idle, c.IdleTimeout))
}

// UDPTimeoutOf returns for how long a UDP session may be silent.
func (c *Config) UDPTimeoutOf(t *registry.Terms) time.Duration {
	return cmp.Or(t.Timeouts.UDP, c.UDPTimeout)
}

// RemovalOf returns what becomes of TCP connections whose endpoint or service is removed.
func (c *Config) RemovalOf(t *registry.Terms) removal.Policy {
	return removal.PolicyOf(t.Removal, c.OnRemoval)
}

// Cuts reports whether TCP connections of a service are closed at the end of a lifetime that they began under.
func (c *Config) Cuts(t *registry.Terms) bool { return t.Failure.Close || c.RemovalOf(t).Close }

// DialTimes returns for how long one endpoint may take to accept a connection, and all endpoints of one client together, where connect is what
// the record says of the former; 0: nothing.
func (c *Config) DialTimes(connect time.Duration) (attempt, total time.Duration) {
	return cmp.Or(connect, c.DialTimeout), max(connect, c.DialTotalTimeout)
}
