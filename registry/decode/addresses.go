package decode

import (
	"fmt"
	"net/netip"
	"slices"

	"kubeproxy/registry"
)

// Addresses says where the ports of services are.
type Addresses uint8

const (
	AtNode    Addresses = iota // at the node
	AtCluster                  // at the addresses that a cluster has given them, and node ports at the node
	AtBoth                     // at these addresses, and ports and node ports at the node
)

// The fields that have addresses of a service. They differ in who comes there.
const (
	clusterAddresses  = iota // clients in the cluster
	externalAddresses        // others
	balancerAddresses        // others, by a load balancer: source ranges are about them
	addressFields            // how many there are
)

// addIngress notes an address of a load balancer. One that is a proxy sends what it receives to the addresses of nodes.
func (spec *serviceSpec) addIngress(ip, mode string) {
	if mode != "Proxy" {
		spec.own[balancerAddresses] = append(spec.own[balancerAddresses], ip)
	}
}

// place gives a service its ports, at their addresses.
func (spec *serviceSpec) place(s *registry.Service, terms *registry.Terms, l *portList) (odd []registry.Warning, err error) {
	listen, listens := spec.wishes.Annotations[registry.ListenAnnotation]
	var addrs []netip.Addr
	if listens {
		if addrs, err = registry.ParseListen(listen); err == nil {
			err = fits(len(addrs), l)
		}
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", registry.ListenAnnotation, err)
		}
	}
	if spec.at == AtNode {
		if s.Ports = l.ports; listens {
			s.Ports = at(addrs, l.ports, registry.Port{})
		}
		return nil, nil
	}
	outside := terms.Local
	inside, odd := registry.ParseTrafficPolicy(spec.internalPolicy)
	terms.Local = outside && inside
	var own [addressFields][]netip.Addr
	switch {
	case listens:
		s.Ports = at(addrs, l.ports, registry.Port{Local: inside && !outside})
	default:
		var warnings []registry.Warning
		own, warnings = spec.ownAddresses()
		odd = append(odd, warnings...)
		if err := fits(len(slices.Concat(own[:]...)), l); err != nil {
			return nil, err
		}
	}
	s.Ports = append(s.Ports, at(own[clusterAddresses], l.ports, registry.Port{Local: inside && !outside, Open: true})...)
	s.Ports = append(s.Ports, at(own[externalAddresses], l.ports, registry.Port{Local: outside && !inside, Open: true})...)
	s.Ports = append(s.Ports, at(own[balancerAddresses], l.ports, registry.Port{Local: outside && !inside})...)
	node := []netip.Addr{{}}
	if spec.at == AtBoth && !listens {
		s.Ports = append(s.Ports, at(node, l.ports, registry.Port{Local: inside && !outside})...)
	}
	for _, p := range at(node, l.onNode, registry.Port{Local: outside && !inside, Open: true}) {
		switch i := slices.IndexFunc(s.Ports, func(q registry.Port) bool { return q.ID() == p.ID() }); {
		case i < 0:
			s.Ports = append(s.Ports, p)
		case s.Ports[i].Name != p.Name:
			return nil, fmt.Errorf("%v port %d of the node is listed twice", p.Protocol, p.Number)
		}
	}
	if len(s.Ports) == 0 && len(l.ports) > 0 {
		odd = append(odd, "it has no address of its own and no nodePort, so -service_address=cluster offers it nowhere")
	}
	return odd, nil
}

// fits reports that a service has too many ports at so many addresses.
func fits(addrs int, l *portList) error {
	if n := addrs * len(l.ports); n > MaxServicePorts {
		return fmt.Errorf("%d ports at %d addresses are %d, more than %d", len(l.ports), addrs, n, MaxServicePorts)
	}
	return nil
}

// at gives each port at each address, with what the address means.
func at(addrs []netip.Addr, ports []registry.Port, means registry.Port) []registry.Port {
	all := make([]registry.Port, 0, len(addrs)*len(ports))
	for _, p := range ports {
		p.Local, p.Open = means.Local, means.Open
		for _, p.Addr = range addrs {
			all = append(all, p)
		}
	}
	return all
}

// ownAddresses reads the addresses that the record gives the service. One that no service can have is left out. One that is there twice counts where it
// is first.
func (spec *serviceSpec) ownAddresses() (own [addressFields][]netip.Addr, odd []registry.Warning) {
	known, out := make(map[netip.Addr]bool), leftOut{}
	for field, texts := range spec.own {
		for _, text := range texts {
			if text == "" || text == "None" {
				continue
			}
			addr, err := netip.ParseAddr(text)
			if addr = addr.Unmap(); err != nil {
				err = errNotAddr
			} else {
				err = registry.CheckListen(addr)
			}
			switch {
			case err != nil:
				out.leaveOut(1, text, err)
			case !known[addr]:
				known[addr] = true
				own[field] = append(own[field], addr)
			}
		}
	}
	return own, out.warnings("address of its own", "addresses of its own")
}
