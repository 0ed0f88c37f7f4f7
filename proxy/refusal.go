package proxy

import (
	"errors"
	"net/netip"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// Why a service does not get a port.
var (
	errPortNotAllowed    = errors.New("no service may have it (-allowed_ports)")
	errPortNotAllowedIn  = errors.New("no service of this namespace may have it (-allowed_ports)")
	errPortReserved      = errors.New("this proxy has it for its operators")
	errPortOfEtcd        = errors.New("the etcd on this machine has it (-etcd_servers)")
	errAddressOfNode     = errors.New("it is an address of the node: write node in its place (kube-proxy/listen)")
	errAddressNotAllowed = errors.New("no service may have the address (-allowed_listen)")
	errAddressBeside     = errors.New("no service may have the address beside that of -bind_address, unless -allowed_listen or -service_cidr holds it")
)

// localhost is the node's: services and programs of the node are told apart by its ports.
var localhost = netip.MustParseAddr("127.0.0.1")

// addressRefusal reports why no service may listen at an address of its own; nil: it may, if the node has it.
func (c *Config) addressRefusal(at netip.Addr) error {
	switch {
	case !at.IsValid():
		return nil
	case at == localhost, at == c.BindAddress:
		return errAddressOfNode
	case len(c.AllowedListen) > 0:
		if !registry.Within(c.AllowedListen, at) {
			return errAddressNotAllowed
		}
	case !c.BindAddress.IsUnspecified() && !at.IsLoopback() && !registry.Within(c.ServiceRanges, at):
		return errAddressBeside
	}
	return nil
}

// Refusal reports why a proxier of this configuration does not let a service have a listener; nil: it does.
func (c *Config) Refusal(service registry.Name, id registry.ListenerID) error {
	if err := c.addressRefusal(id.Addr); err != nil {
		return err
	}
	switch isTCP := id.Protocol == registry.TCP; {
	case isTCP && slices.Contains(c.ReservedPorts, id.Number):
		return errPortReserved
	case isTCP && slices.Contains(c.EtcdPorts, id.Number):
		return errPortOfEtcd
	case len(c.AllowedPorts) == 0 && len(c.NamespacePorts) == 0:
		return nil
	}
	allowed, named := c.NamespacePorts[service.Namespace]
	if !named {
		allowed = c.AllowedPorts
	}
	if slices.ContainsFunc(allowed, func(r PortRange) bool { return r.First <= id.Number && id.Number <= r.Last }) {
		return nil
	}
	if len(c.NamespacePorts) > 0 {
		return errPortNotAllowedIn
	}
	return errPortNotAllowed
}

// mayBeClaimed reports whether there is a service that may have a listener.
func (c *Config) mayBeClaimed(id registry.ListenerID) bool {
	if c.Refusal(registry.Name{}, id) == nil {
		return true
	}
	for namespace := range c.NamespacePorts {
		if c.Refusal(registry.Name{Namespace: namespace}, id) == nil {
			return true
		}
	}
	return false
}

// wanted makes the claims of a service, in the order of its ports and without what only the balancer and the tallies can give them.
// Those on ports that it may not have are refused.
func (c *Config) wanted(service *registry.Service) (wanted, refused []*engine.Claim) {
	if service == nil {
		return nil, nil
	}
	wanted = make([]*engine.Claim, 0, len(service.Ports))
	shared := []*registry.Terms{service.Terms()} // by all ports that have the same
	for i, port := range service.Ports {
		terms := sharedTerms(service.TermsOf(&port), &shared)
		id, key := port.ID(), registry.PortKey{Name: service.Name, Port: port.Name}
		if c.Refusal(service.Name, id) != nil {
			refused = append(refused, &engine.Claim{ID: id, Key: key})
			continue
		}
		wanted = append(wanted, &engine.Claim{ID: id, Key: key, Rank: service.Rank, Since: service.ClaimedSince(i), Terms: terms})
	}
	return wanted, refused
}

// sharedTerms returns one of the shared terms that are the same, or adds these.
func sharedTerms(own *registry.Terms, shared *[]*registry.Terms) *registry.Terms {
	if i := slices.IndexFunc(*shared, own.Equal); i >= 0 {
		return (*shared)[i]
	}
	*shared = append(*shared, own)
	return own
}

// refuseLocked notes a claim on a port that its service may not have, and logs it.
func (p *Proxier) refuseLocked(c *engine.Claim) {
	id := c.ID
	r := p.refused[id]
	if r == nil {
		r = &refusedPort{err: p.cfg.Refusal(c.Key.Name, id)}
		p.refused[id] = r
	}
	r.claims.add(c)
	if note, ok := p.forbidden.Allow(aboutPort{id, c.Key, false}); ok {
		glog.Errorf("%s cannot have %s: %v%s", c.Key, id, r.err, note)
	}
}

// renewRefusedLocked reports whether a service asked for a port in vain. If the service still does, the claim moves from refused to the
// place of the one before; else the claim before is forgotten.
func (p *Proxier) renewRefusedLocked(id registry.ListenerID, name registry.Name, refused map[registry.ListenerID]*engine.Claim) bool {
	r := p.refused[id]
	if r == nil {
		return false
	}
	had := r.claims.find(name)
	if had == nil {
		return false
	}
	if c := refused[id]; c != nil {
		r.claims.replace(had, c)
		delete(refused, id)
	} else if r.claims.remove(had); r.claims.n == 0 {
		delete(p.refused, id)
	}
	return true
}
