package registry

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Endpoints are the addresses behind one service, by the name of the port they serve; "" is the
// unnamed port. Each list is in the order of the record, without repeats. No list is empty, no port is
// named twice, and they are sorted by their names: most records have one, for which a map is large.
type Endpoints struct {
	Name
	ByPort []PortAddrs
}

// PortAddrs are the addresses that serve one port.
type PortAddrs struct {
	Port  string
	Addrs Addrs
}

func (p PortAddrs) compareTo(port string) int { return cmp.Compare(p.Port, port) }

// Of gives the addresses that serve a port; none if it is not named.
func (e *Endpoints) Of(port string) Addrs {
	if at, ok := slices.BinarySearchFunc(e.ByPort, port, PortAddrs.compareTo); ok {
		return e.ByPort[at].Addrs
	}
	return Addrs{}
}

// Equal tells whether two endpoints records say the same, order included.
func (e *Endpoints) Equal(f *Endpoints) bool {
	if e == nil || f == nil {
		return e == f
	}
	return e.Name == f.Name && slices.Equal(e.ByPort, f.ByPort)
}

// maxCombined bounds how many endpoints the subsets of one record may stand for beside those that it
// spells out. Each address of a subset goes with each of its ports, so that a few kilobytes could
// stand for millions, and a record of [MaxRecordBytes] for thousands of millions.
const maxCombined = 1 << 16

// A subset is a set of addresses that all serve the same ports (v0.14 and later). Its
// notReadyAddresses are not read: they must not be given any client.
type subset struct {
	Addresses last[[]address]      `json:"addresses"`
	Ports     last[[]endpointPort] `json:"ports"`
}

// An address is spelled "IP" until v1beta3 and "ip" in v1; package json takes one for the other.
// Masters that derived subsets from older records put host names there too.
type address struct {
	IP string `json:"ip"`
}

type endpointPort struct {
	Name string `json:"name"`
	Port *int64 `json:"port"`
}

// endpoints reads endpoints, leaving out entries that nobody could connect to.
func (b *body) endpoints(c *collector) error {
	any := false
	err := eachOf("subsets", b.Subsets, func(s *subset) error {
		any = true
		return c.addSubset(s)
	})
	switch {
	case err != nil || any: // then the older list is a copy for older readers
		return err
	case b.nested && isListOf('{', b.Endpoints):
		return c.addPairs(b)
	}
	return c.addStrings(b)
}

// isListOf tells whether the first element of a JSON array begins with b.
func isListOf(b byte, array []byte) bool {
	first := bytes.TrimLeft(bytes.TrimPrefix(array, []byte("[")), jsonSpace)
	return len(first) > 0 && first[0] == b
}

// addStrings adds the list of v1beta1, v1beta2 and the first v1beta3: ["10.244.1.5:80"].
func (c *collector) addStrings(b *body) error {
	if b.Endpoints == nil {
		return nil
	}
	if b.Endpoints[0] != '[' {
		return unmarshal("endpoints", b.Endpoints, new([]string)) // which says what is wrong with it
	}
	list := string(b.Endpoints) // of which each entry is a part, and needs no memory of its own
	port := c.port("", min(strings.Count(list, ","), len(list)/len(`"1.2.3.4:5",`))+1)
	for text := range elements(list) {
		s, err := stringOf("endpoints", text)
		if err != nil {
			return err
		}
		a, err := ParseAddr(s)
		if err != nil {
			c.leaveOut(1, s, err)
			continue
		}
		port.add(a)
	}
	return nil
}

// addPairs adds the list of v1beta3 in v0.12 and v0.13: [{"ip": "10.244.1.5", "port": 80}].
func (c *collector) addPairs(b *body) error {
	type pair struct {
		IP   string `json:"ip"`
		Port *int64 `json:"port"`
	}
	port := c.port("", 0)
	return eachOf("endpoints", b.Endpoints, func(p *pair) error {
		number, err := portNumber(p.Port)
		if err != nil {
			c.leaveOut(1, p.IP, err)
			return nil
		}
		a, err := parseHost(p.IP)
		if err != nil {
			c.leaveOut(1, p.IP, err)
			return nil
		}
		port.add(a.withPort(number))
		return nil
	})
}

// addSubset adds every address of a subset with every port of that subset. What is wrong with one of them is found
// once, and counts for all that it would have been combined with.
func (c *collector) addSubset(s *subset) error {
	var hosts []Addr
	for _, address := range s.Addresses.value {
		host, err := parseHost(address.IP)
		if err != nil {
			c.leaveOut(len(s.Ports.value), address.IP, err)
			continue
		}
		hosts = append(hosts, host)
	}
	for i, p := range s.Ports.value {
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
			port.add(host.withPort(number))
		}
	}
	return nil
}

// A collector gathers the addresses of one record by port name, each address once.
type collector struct {
	ports    []*gathered
	byName   map[string]*gathered // those beyond the first few
	combined int                  // endpoints that subsets stand for beside those that they spell out
	leftOut
}

// Gathered are the addresses of one port, in the order they were first seen.
type gathered struct {
	name   string
	packed strings.Builder
	n      int
	seen   map[Addr]struct{} // nil while there are few
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
	p.packed.Grow(n * packedIPv4)
	if c.ports = append(c.ports, p); len(c.ports) > few {
		if c.byName == nil {
			c.byName = make(map[string]*gathered)
		}
		c.byName[name] = p
	}
	return p
}

// add appends a, unless it is there. D31: in v0.4 a repeated entry got a double share of clients.
func (p *gathered) add(a Addr) {
	switch {
	case p.n < few:
		for known := range p.list().All() {
			if known == a {
				return
			}
		}
	case p.seen == nil:
		p.seen = make(map[Addr]struct{}, p.packed.Cap()/packedIPv4)
		for known := range p.list().All() {
			p.seen[known] = struct{}{}
		}
	}
	if p.seen != nil {
		if p.seen[a] = struct{}{}; len(p.seen) == p.n { // to have looked before would take as long again
			return
		}
	}
	a.pack(&p.packed)
	p.n++
}

func (p *gathered) list() Addrs { return Addrs{p.packed.String(), p.n} }

// byPort gives what was gathered, without the ports that got no address.
func (c *collector) byPort() []PortAddrs {
	var byPort []PortAddrs
	for _, p := range c.ports {
		if p.n == 0 {
			continue
		}
		if byPort == nil {
			byPort = make([]PortAddrs, 0, len(c.ports))
		}
		list := p.list()
		if p.packed.Cap() > 2*p.packed.Len() {
			list.packed = strings.Clone(list.packed) // repeats have left room that nobody will use
		}
		byPort = append(byPort, PortAddrs{p.name, list})
	}
	slices.SortFunc(byPort, func(p, q PortAddrs) int { return p.compareTo(q.Port) })
	return byPort
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
		l.named = append(l.named, quote(what, maxQuotedShort)+" ("+why.Error()+")")
	}
}

// warnings tells of all that was left out in one line.
func (l *leftOut) warnings() []Warning {
	if l.count == 0 {
		return nil
	}
	said := "unusable endpoint left out: "
	if l.count > 1 {
		said = fmt.Sprintf("%d unusable endpoints left out: ", l.count)
	}
	if l.count > len(l.named) {
		said = fmt.Sprintf("%d unusable endpoints left out, among them ", l.count)
	}
	return []Warning{Warning(said + strings.Join(l.named, ", "))}
}
