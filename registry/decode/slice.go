package decode

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"kubeproxy/registry"
)

// A sliceEndpoint is one endpoint of a slice. Of its addresses the first counts: Kubernetes gives the others no meaning.
type sliceEndpoint struct {
	address    string
	ipv4       netip.Addr // the address where it was read already
	addresses  int        // how many there are
	conditions sliceConditions
	place      registry.Place
}

// SliceConditions say what an endpoint is fit for.
type sliceConditions struct{ ready, serving, terminating condition }

// A condition may be true, false, or not said: then it is what it is of most endpoints.
type condition uint8

const (
	unsaid condition = iota
	isFalse
	isTrue
)

func conditionOf(is bool) condition {
	if is {
		return isTrue
	}
	return isFalse
}

// isReady reports whether an endpoint is for every client.
func (c sliceConditions) isReady() bool { return c.ready != isFalse }

// isLastResort reports whether an endpoint that is not ready is still of use.
func (c sliceConditions) isLastResort() bool { return c.serving != isFalse && c.terminating == isTrue }

// An addressType says what the addresses of a slice are.
type addressType uint8

const (
	literalAddresses addressType = iota // "IP", of Kubernetes 1.16: of either family
	ipv4Addresses
	ipv6Addresses
	hostNames // "FQDN": Kubernetes' own proxy skips these slices, and this one can dial them
)

func parseAddressType(s string) (addressType, error) {
	switch s {
	case "IPv4":
		return ipv4Addresses, nil
	case "IPv6":
		return ipv6Addresses, nil
	case "FQDN":
		return hostNames, nil
	case "IP":
		return literalAddresses, nil
	case "":
		return 0, errors.New("no addressType")
	}
	return 0, fmt.Errorf("unknown addressType %s", registry.Quote(s))
}

var (
	errNotIPv4 = errors.New("not an IPv4 address")
	errNotIPv6 = errors.New("not an IPv6 address")
	errNotName = errors.New("not a host name")
	errNotAddr = errors.New("not an address")
)

// check reports why an address is not of a type.
func (t addressType) check(a registry.Addr) error {
	ip := a.IP.Addr()
	switch {
	case t == ipv4Addresses && !ip.Is4():
		return errNotIPv4
	case t == ipv6Addresses && !ip.Is6():
		return errNotIPv6
	case t == hostNames && a.Host == "":
		return errNotName
	case t == literalAddresses && a.Host != "":
		return errNotAddr
	}
	return nil
}

// SliceParts are what has been read of a slice: each address will go with each port.
type sliceParts struct {
	excluded           bool // its labels say that it is not for this proxy
	service            string
	kind               addressType
	ready, terminating []registry.Addr // without a port
	node               registry.Node   // that reads it
	places             places
	ports              []slicePort
	sctp               []string // ports that were left out
	spare              int      // addresses beyond the first of their endpoint
	leftOut
}

type slicePort struct {
	name   string
	number uint16
}

// addPort adds a port that a service may have. One without a number means every port, which nothing can be joined to.
func (p *sliceParts) addPort(port *servicePort) error {
	if err := checkPortName(port.Name); err != nil {
		return err
	}
	number, err := portNumber(port.Port)
	switch {
	case err != nil:
	case isSCTP(port.Protocol):
		p.sctp = append(p.sctp, strconv.Itoa(int(number)))
		return nil
	default:
		_, err = parseProtocol(port.Protocol)
	}
	if err != nil {
		p.leaveOut(1, port.Name, err)
		return nil
	}
	p.ports = append(p.ports, slicePort{port.Name, number})
	return nil
}

// addEndpoint adds an endpoint that clients may be sent to.
func (p *sliceParts) addEndpoint(e sliceEndpoint) {
	list := &p.ready
	switch {
	case e.conditions.isReady():
	case e.conditions.isLastResort():
		list = &p.terminating
	default:
		return
	}
	if e.addresses == 0 {
		p.leaveOut(1, "", errNoAddress)
		return
	}
	p.spare += e.addresses - 1
	host, err := e.host()
	if err == nil {
		err = p.kind.check(host)
	}
	if err != nil {
		p.leaveOut(1, cmp.Or(e.address, host.IP.Addr().String()), err)
		return
	}
	*list = append(*list, host)
	p.places.add(host, e.place)
}

func (e *sliceEndpoint) host() (registry.Addr, error) {
	if e.ipv4.IsValid() {
		return registry.Addr{IP: netip.AddrPortFrom(e.ipv4, 0)}, registry.CheckUnicast(e.ipv4)
	}
	return registry.ParseHost(e.address)
}

var errNoAddress = errors.New("no address")

// slice makes a slice of what has been read.
func (p *sliceParts) slice(name registry.Name) (*registry.EndpointSlice, error) {
	s := &registry.EndpointSlice{Name: name}
	if p.excluded {
		return s, nil
	}
	s.Service = p.service
	var err error
	s.Ready, s.Terminating, err = p.combine()
	return s, err
}

// combine gives every address with every port, by the names of the ports.
func (p *sliceParts) combine() (ready, terminating []registry.PortAddrs, err error) {
	hosts := len(p.ready) + len(p.terminating)
	if n := len(p.ports) - 1; n > 0 && hosts > maxCombined/n { // the first port is what a plain list would have spelled out
		return nil, nil, fmt.Errorf("ports and endpoints combine to more than %d endpoints", maxCombined)
	}
	slices.SortFunc(p.ports, func(a, b slicePort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.number, b.number))
	})
	p.ports = slices.Compact(p.ports)
	return p.places.combine(p.ready, p.ports), p.places.combine(p.terminating, p.ports), nil
}

// combine gives every host with every port. The ports are sorted.
func (p places) combine(hosts []registry.Addr, ports []slicePort) []registry.PortAddrs {
	if len(hosts) == 0 || len(ports) == 0 {
		return nil
	}
	slices.SortFunc(hosts, registry.Addr.Compare)
	hosts = slices.Compact(hosts)
	byPort := make([]registry.PortAddrs, 0, len(ports))
	for len(ports) > 0 {
		same := 1
		for same < len(ports) && ports[same].name == ports[0].name {
			same++
		}
		addrs := withPorts(hosts, ports[:same])
		byPort = append(byPort, registry.PortAddrs{Port: ports[0].name, Addrs: addrs, Places: p.of(addrs)})
		ports = ports[same:]
	}
	return byPort
}

// withPorts gives each host with each of some ports, sorted as both are.
func withPorts(hosts []registry.Addr, ports []slicePort) registry.Addrs {
	var list registry.AddrsBuilder
	list.Grow(len(hosts) * len(ports))
	for _, host := range hosts {
		for _, port := range ports {
			list.Add(host.WithPort(port.number))
		}
	}
	return list.Addrs()
}

// warnings tells what was left out.
func (p *sliceParts) warnings() []registry.Warning {
	warnings := p.leftOut.warnings("endpoint", "endpoints")
	if len(p.sctp) > 0 {
		warnings = append(warnings, sctpWarning(p.sctp))
	}
	if p.spare > 0 {
		warnings = append(warnings, registry.Warning(fmt.Sprintf("addresses beyond the first of their endpoint are ignored: %d", p.spare)))
	}
	return warnings
}

// The labels that mean something to a proxy (kubernetes.io/docs/reference/labels-annotations-taints).
const (
	labelServiceName = "kubernetes.io/service-name"               // ties a slice to its service
	labelOtherProxy  = "service.kubernetes.io/service-proxy-name" // on a service and its slices: another program is their proxy
	labelHeadless    = "service.kubernetes.io/headless"           // on slices of a service whose clients go by DNS
	zoneLabel        = "topology.kubernetes.io/zone"              // in the topology of an endpoint, before discovery.k8s.io/v1 had a field for it
)

// belongsTo sets the service of a slice by the label that names it, if there is one. What no key can hold is the name of no service:
// see [ParseKey].
func (p *sliceParts) belongsTo(service string, ok bool) error {
	switch {
	case !ok:
		return errors.New("no label " + labelServiceName + ", so the slice belongs to no service")
	case service == "":
		return errors.New("label " + labelServiceName + " is empty")
	case len(service) > registry.MaxName:
		return fmt.Errorf("label %s of %d bytes is longer than %d", labelServiceName, len(service), registry.MaxName)
	case strings.Contains(service, "/"):
		return fmt.Errorf("label %s holds %s, which is no name of a service", labelServiceName, registry.Quote(service))
	}
	p.service = service
	return nil
}
