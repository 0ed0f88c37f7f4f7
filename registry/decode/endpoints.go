package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kubeproxy/registry"
)

// maxCombined bounds how many endpoints the subsets of one record may stand for beside those that it
// spells out. Each address of a subset goes with each of its ports, so that a few kilobytes could
// stand for millions, and a record of [MaxRecordBytes] for thousands of millions.
const maxCombined = 1 << 16

// A subset is a set of addresses that all serve the same ports (v0.14 and later). Its
// notReadyAddresses are not read: they must not be given any client.
type subset struct {
	Addresses last[[]address]      `json:"addresses"`
	Ports     last[[]endpointPort] `json:"ports"`

	node registry.Node // that reads it; of protobuf
}

// An address is spelled "IP" until v1beta3 and "ip" in v1; package json takes one for the other.
// Masters that derived subsets from older records put host names there too.
type address struct {
	IP       string  `json:"ip"`
	NodeName *string `json:"nodeName"` // since v1.4
}

type endpointPort struct {
	Name string `json:"name"`
	Port *int64 `json:"port"`
}

// addSubset adds every address of a subset with every port of that subset. What is wrong with one of them is found
// once, and counts for all that it would have been combined with.
func (c *collector) addSubset(s *subset) error {
	var hosts []registry.Addr
	for _, address := range s.Addresses.Value {
		host, err := registry.ParseHost(address.IP)
		if err != nil {
			c.leaveOut(len(s.Ports.Value), address.IP, err)
			continue
		}
		hosts = append(hosts, host)
		if address.NodeName != nil {
			var place registry.Place
			c.node.SetNode(&place, *address.NodeName)
			c.places.add(host, place)
		}
	}
	for i, p := range s.Ports.Value {
		if err := checkPortName(p.Name); err != nil {
			return err
		}
		number, err := portNumber(p.Port)
		if err != nil {
			c.leaveOut(len(hosts), p.Name, err)
			continue
		}
		if i > 0 { // the first port is what a plain list would have spelled out
			c.combined += len(hosts)
		}
		if c.combined > maxCombined {
			return fmt.Errorf("subsets combine to more than %d endpoints", maxCombined)
		}
		port := c.port(p.Name, len(hosts))
		for _, host := range hosts {
			port.add(host.WithPort(number))
		}
	}
	return nil
}

// A collector gathers the addresses of one record by port name, each address once.
type collector struct {
	ports    []*gathered
	byName   map[string]*gathered // those beyond the first few
	combined int                  // endpoints that subsets stand for beside those that they spell out
	node     registry.Node
	places   places
	leftOut
}

// Gathered are the addresses of one port, in the order they were first seen.
type gathered struct {
	name string
	list registry.AddrsBuilder
	seen map[registry.Addr]struct{} // nil while there are few
}

// few is how many addresses, or ports, are sooner compared one by one than looked up.
const few = 16

// port gives the list of one port name, to which about n addresses will be added. Looking it up
// once for all of them matters: the name may be long.
func (c *collector) port(name string, n int) *gathered {
	for _, p := range c.ports[:min(few, len(c.ports))] {
		if p.name == name {
			return p
		}
	}
	if p := c.byName[name]; p != nil {
		return p
	}
	p := &gathered{name: name}
	p.list.Grow(n)
	if c.ports = append(c.ports, p); len(c.ports) > few {
		if c.byName == nil {
			c.byName = make(map[string]*gathered)
		}
		c.byName[name] = p
	}
	return p
}

// add appends a, unless it is there. D31: in v0.4 a repeated entry got a double share of clients.
func (p *gathered) add(a registry.Addr) {
	switch {
	case p.list.Len() < few:
		for known := range p.list.Addrs().All() {
			if known == a {
				return
			}
		}
	case p.seen == nil:
		p.seen = make(map[registry.Addr]struct{}, p.list.Room())
		for known := range p.list.Addrs().All() {
			p.seen[known] = struct{}{}
		}
	}
	if p.seen != nil {
		if p.seen[a] = struct{}{}; len(p.seen) == p.list.Len() { // to have looked before would take as long again
			return
		}
	}
	p.list.Add(a)
}

// byPort gives what was gathered, without the ports that got no address.
func (c *collector) byPort() []registry.PortAddrs {
	var byPort []registry.PortAddrs
	for _, p := range c.ports {
		if p.list.Len() == 0 {
			continue
		}
		if byPort == nil {
			byPort = make([]registry.PortAddrs, 0, len(c.ports))
		}
		addrs := p.list.Compact() // since repeats may have left much room unused
		byPort = append(byPort, registry.PortAddrs{Port: p.name, Addrs: addrs, Places: c.places.of(addrs)})
	}
	slices.SortFunc(byPort, func(p, q registry.PortAddrs) int { return cmp.Compare(p.Port, q.Port) })
	return byPort
}

// Places are those of hosts, which are addresses without a port. It is nil while nothing is known of any.
type places map[registry.Addr]registry.Place

func (p *places) add(host registry.Addr, place registry.Place) {
	if place == 0 {
		return
	}
	if *p == nil {
		*p = make(places)
	}
	(*p)[host] |= place
}

// of returns the places of addresses.
func (p places) of(addrs registry.Addrs) registry.Places {
	if p == nil {
		return ""
	}
	return registry.PlacesOf(addrs, func(a registry.Addr) registry.Place { return p[a.WithPort(0)] })
}

// maxNamed is how many of the entries left out are named: enough to find the mistake, and few
// enough for one log line.
const maxNamed = 3

// leftOut counts the entries of a record that could not be used.
type leftOut struct {
	count int
	named []string
}

// leaveOut counts n entries that cannot be used because of what.
func (l *leftOut) leaveOut(n int, what string, why error) {
	if n == 0 {
		return
	}
	l.count += n
	if len(l.named) < maxNamed {
		l.named = append(l.named, registry.QuoteShort(what)+" ("+why.Error()+")")
	}
}

// warnings tells of all that was left out in one line. It is given what one of them is called, and what many are.
func (l *leftOut) warnings(one, many string) []registry.Warning {
	if l.count == 0 {
		return nil
	}
	said := "unusable " + one + " left out: "
	if l.count > 1 {
		said = fmt.Sprintf("%d unusable %s left out: ", l.count, many)
	}
	if l.count > len(l.named) {
		said = fmt.Sprintf("%d unusable %s left out, among them ", l.count, many)
	}
	return []registry.Warning{registry.Warning(said + strings.Join(l.named, ", "))}
}
