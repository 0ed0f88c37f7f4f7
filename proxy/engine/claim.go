package engine

import (
	"net/netip"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Claim is the wish of one port of one service to own a listener, and what its traffic needs: the
// rotation of its endpoints, and on what terms clients are let in. To an engine a claim never changes;
// a listener changes hands, and a service its terms, by swapping a pointer to one. A claim that only
// renews the terms has the rotation, the tally and the lifetime of the one before.
type Claim struct {
	ID       registry.ListenerID // that it wishes to own
	Key      registry.PortKey
	Rank     int                // of the source that the service is from
	Since    int64              // the revision from which on the service is known to claim the port
	Rotation *rotation.Rotation // nil while it has waited for the port from the start, and so are the next two
	Tally    *traffic.Tally
	Lifetime *removal.Lifetime // on the port
	Waited   bool              // it was made known that the port is another's; the Proxier's, guarded by its mu

	Before, After *Claim // on the same port; as waited

	*registry.Terms // shared by the claims of a service, and never changed; [registry.NoTerms] of most
}

// Same reports whether two claims of a service on a port are the same to its clients.
func (c *Claim) Same(d *Claim) bool { return c.Key == d.Key && c.Terms.Equal(d.Terms) }

// Choose begins the choice of an endpoint for a client of the claim.
func (c *Claim) Choose(client netip.Addr) rotation.Choice {
	return c.Rotation.ChooseFor(c.Tally.Protocol, client, c.Terms, c.Lifetime)
}
