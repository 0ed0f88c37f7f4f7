package check

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"kubeproxy/proxy"
	"kubeproxy/registry"
)

// privileged is the first port that needs no privilege.
const privileged = 1024

// shareOutPorts decides who would have each port, as a proxy does that starts now: of those who want
// it the one that comes first. It marks the services that have to wait, and those that ask for what is
// not allowed.
func (x *examination) shareOutPorts() {
	claims := x.claims()
	x.listeners = len(claims)
	waiting, unsettled, low, local := make(map[*held]*list), make(map[*held]*list), 0, 0
	var without list // of a descriptor
	for i, id := range slices.SortedFunc(maps.Keys(claims), registry.ListenerID.Compare) {
		slices.SortFunc(claims[id], func(a, b *held) int { return precedence(a).Compare(precedence(b)) })
		owner := claims[id][0]
		x.own.Add(id)
		x.owners[id] = owner
		for _, s := range claims[id][1:] {
			add(waiting, s, func() string { return id.Short() + " belongs to " + owner.Service.Name.String() + why(owner, s) })
			if mayDiffer(owner, s) {
				add(unsettled, s, func() string {
					return fmt.Sprintf("%s (the record of %v is of revision %d, this one was created at %d)", id.Short(), owner.Service.Name, owner.modified, s.Service.Created)
				})
			}
		}
		if id.Number < privileged {
			low++
		}
		if x.LocalPorts.First <= id.Number && id.Number <= x.LocalPorts.Last {
			local++
		}
		if x.DescriptorLimit > 0 && i >= x.ListenerRoom { // they are opened in this order
			without.add(func() string { return id.Short() + " of " + owner.Service.Name.String() })
		}
	}
	for s, ports := range waiting {
		s.verdict.find(Error, PortConflict, ports.String())
	}
	for s, ports := range unsettled {
		s.verdict.find(Warning, UnsettledConflict, "which service claimed the port first is not known, so a node may have another owner until it restarts: "+ports.String())
	}
	x.sayOfListeners(low, local, &without)
}

// claims finds the services that want each port and may have it. The others are marked.
func (x *examination) claims() map[registry.ListenerID][]*held {
	claims := make(map[registry.ListenerID][]*held)
	for _, s := range x.services {
		var forbidden, elsewhere list
		for _, p := range s.Service.Ports {
			id := p.ID()
			if x.RefusePort != nil {
				if err := x.RefusePort(s.Service.Name, id); err != nil {
					forbidden.add(func() string { return id.Short() + ": " + err.Error() })
					continue
				}
			}
			if id.Addr.IsValid() && x.HasAddress != nil && !x.HasAddress(id.Addr) {
				elsewhere.add(id.Short)
			}
			claims[id] = append(claims[id], s)
		}
		if elsewhere.count > 0 {
			s.verdict.find(Info, AddressElsewhere, "no interface of this machine has the address of "+elsewhere.String()+": a node without it does not open the port, and tries again until it has it")
		}
		if forbidden.count > 0 {
			s.verdict.find(Error, ForbiddenPort, "cannot have "+forbidden.String())
		}
	}
	return claims
}

// add appends a text to the list of a service.
func add(to map[*held]*list, s *held, text func() string) {
	if to[s] == nil {
		to[s] = new(list)
	}
	to[s].add(text)
}

// sayOfListeners reports what this machine may not let a proxy open: low ports, local ports, and those without a descriptor.
func (x *examination) sayOfListeners(low, local int, without *list) {
	if low > 0 {
		x.say(Info, PrivilegedPorts, fmt.Sprintf("listeners on ports below %d, which take root or CAP_NET_BIND_SERVICE: %d of %d", privileged, low, x.listeners))
	}
	if local > 0 {
		x.say(Info, LocalPorts, fmt.Sprintf("listeners on ports from %d to %d, any of which this machine may have given to a connection (net.ipv4.ip_local_port_range; "+
			"net.ipv4.ip_local_reserved_ports keeps ports out of it): %d of %d", x.LocalPorts.First, x.LocalPorts.Last, local, x.listeners))
	}
	if without.count > 0 {
		x.say(Warning, TooManyListeners, fmt.Sprintf("%d listeners do not fit the descriptor limit: of the %d of this shell (ulimit -n), listeners may have %d; "+
			"not open would be %s; a limit of %d has room for all", x.listeners, x.DescriptorLimit, x.ListenerRoom, without, proxy.DescriptorsFor(x.listeners)))
	}
}

// precedence dates a claim as a proxy does that reads the record for the first time: by the age of the value.
func precedence(s *held) registry.Precedence {
	return registry.Precedence{Since: s.modified, Name: s.Service.Name}
}

// mayDiffer reports whether a proxy that has been running may have given s a port that owner is given by one that starts: the value
// of owner is newer than the record of s, and which ports the values before it claimed is not known.
func mayDiffer(owner, s *held) bool { return owner.modified > s.Service.Created }

// why tells what made the owner the owner.
func why(owner, s *held) string {
	if owner.modified < s.modified {
		return ", whose claim is older"
	}
	return ", which comes first by name" // in a directory they are all of the same age
}

// join looks at each service together with its endpoints.
func (x *examination) join() {
	for name, s := range x.services {
		if len(s.Service.Ports) == 0 {
			continue // its clients do not come to us
		}
		e := x.endpoints[name]
		switch {
		case s.Service.Terms().Patroni.Scope != "": // its endpoints are elsewhere
		case e != nil && len(e.ByPort) > 0:
			x.joinPortNames(s, e)
			x.findDrained(s, e)
			x.findFar(s, e)
			x.findForbidden(s, e)
		case e != nil && e.from[0].Slice != nil:
			s.verdict.find(Warning, NoEndpoints, "its endpoint slices name no endpoint that can be used")
		case e != nil:
			s.verdict.find(Warning, NoEndpoints, "the record of its endpoints names none that can be used")
		case x.unusable[object{registry.KindEndpoints, name}]:
			s.verdict.find(Warning, NoEndpoints, "the record of its endpoints cannot be used")
		default:
			s.verdict.find(Warning, NoEndpoints, "there are no endpoints of this name")
		}
	}
}

// joinPortNames marks a service of which some ports have no endpoint while others have: most often
// they go by different names on the two sides.
func (x *examination) joinPortNames(s *held, e *joined) {
	var without list
	for _, p := range s.Service.Ports {
		if e.Of(p.Name).Len() == 0 {
			without.add(func() string { return p.ID().Short() + " (" + portName(p.Name) + ")" })
		}
	}
	if without.count == 0 {
		return
	}
	var names list
	for _, p := range e.ByPort {
		names.add(func() string { return portName(p.Port) })
	}
	s.verdict.find(Warning, NoEndpointsForPort, "no endpoint serves "+without.String()+"; its endpoints serve the "+names.String())
}

// findDrained marks a service with ports whose endpoints all have weight 0.
func (x *examination) findDrained(s *held, e *joined) {
	var drained list
	for _, p := range s.Service.Ports {
		if addrs := e.Of(p.Name); addrs.Len() > 0 && e.Weights.Zeros(addrs) == addrs.Len() {
			drained.add(p.ID().Short)
		}
	}
	if drained.count > 0 {
		s.verdict.find(Warning, NoWeight, "all endpoints of "+drained.String()+" have weight 0, so new clients are refused: give one a weight")
	}
}

// findFar marks a service that wants endpoints on the node only, and has none there.
func (x *examination) findFar(s *held, e *joined) {
	if !slices.ContainsFunc(s.Service.Ports, func(p registry.Port) bool { return s.Service.TermsOf(&p).Local }) {
		return
	}
	if x.Decoder.Node.Name == "" {
		s.verdict.find(Info, NoLocalEndpoint, "its traffic policy is Local, which counts with -node_name only")
		return
	}
	var without list
	for _, p := range s.Service.Ports {
		of := e.Find(p.Name)
		if s.Service.TermsOf(&p).Local && of.Addrs.Len() > 0 && !slices.ContainsFunc([]byte(of.Places), func(b byte) bool { return registry.Place(b)&registry.OnNode != 0 }) {
			without.add(p.ID().Short)
		}
	}
	if without.count > 0 {
		s.verdict.find(Info, NoLocalEndpoint, "its traffic policy is Local, and no endpoint of "+without.String()+" is on this node, so new clients are refused here")
	}
}

func portName(name string) string {
	if name == "" {
		return "unnamed port"
	}
	return "port named " + registry.Quote(name)
}

// findForbidden marks the records that name endpoints which the proxy would not dial for a service.
func (x *examination) findForbidden(s *held, e *joined) {
	type dialled struct {
		protocol registry.Protocol
		port     string
	}
	seen := make(map[dialled]bool) // ports of one name lead to the same endpoints
	loops, forbidden := make([]list, len(e.from)), make([]list, len(e.from))
	for _, p := range s.Service.Ports {
		if d := (dialled{p.Protocol, p.Name}); seen[d] {
			continue
		} else {
			seen[d] = true
		}
		for i, addrs := range e.inForce(p.Name) {
			for addr := range addrs.All() {
				show := func() string { return p.Protocol.String() + " " + showAddr(addr) }
				if slices.ContainsFunc(literal(addr), func(a netip.AddrPort) bool { return x.own.Contains(p.Protocol, a) }) {
					loops[i].add(show)
				}
				if x.AllowEndpoint != nil && slices.ContainsFunc(literal(addr), func(a netip.AddrPort) bool { return !x.AllowEndpoint(a.Addr()) }) {
					forbidden[i].add(show)
				}
			}
		}
	}
	for i, h := range e.from {
		if loops[i].count > 0 {
			h.verdict.find(Error, OwnListener, "the proxy's own listeners: "+loops[i].String())
		}
		if forbidden[i].count > 0 {
			h.verdict.find(Error, ForbiddenEndpoint, "-allowed_endpoints does not allow "+forbidden[i].String())
		}
	}
}

// inForce gives, for each of the records, those of its addresses that clients of a port are sent to.
func (e *joined) inForce(port string) []registry.Addrs {
	of := func(byPort []registry.PortAddrs) registry.Addrs {
		return (&registry.Endpoints{ByPort: byPort}).Of(port)
	}
	all, ready := make([]registry.Addrs, len(e.from)), 0
	for i, h := range e.from {
		if h.Slice == nil {
			return []registry.Addrs{of(e.ByPort)}
		}
		all[i] = of(h.Slice.Ready)
		ready += all[i].Len()
	}
	if ready == 0 {
		for i, h := range e.from {
			all[i] = of(h.Slice.Terminating)
		}
	}
	return all
}

// literal gives the addresses that an endpoint is known to have without a look-up.
func literal(a registry.Addr) []netip.AddrPort {
	switch a.Host {
	case "":
		return []netip.AddrPort{a.IP}
	case "localhost", "localhost.":
		port := a.IP.Port()
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), netip.AddrPortFrom(netip.IPv6Loopback(), port)}
	}
	return nil
}

// showAddr cuts a host name that is too long to be read.
func showAddr(a registry.Addr) string {
	if s := a.String(); len(s) <= 100 {
		return s
	}
	return registry.Quote(a.Host) + ":" + strconv.Itoa(int(a.IP.Port()))
}
