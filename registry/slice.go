package registry

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// An EndpointSlice is a part of the endpoints of one service. All slices that name the service add up to its endpoints: see
// [JoinSlices].
//
// Each list of addresses is sorted, without repeats and not empty. Ready and Terminating name no port twice, are sorted by the names of
// the ports, and name the same ports, unless one of them is empty.
type EndpointSlice struct {
	Name                    // its own
	Service     string      // the name of its service, which is in the same namespace; "": no proxy of this kind is to read it
	Ready       []PortAddrs // for every client
	Terminating []PortAddrs // about to stop, and still answering: for clients that have nobody else
}

// ServiceName names the service that the slice belongs to.
func (s *EndpointSlice) ServiceName() Name { return Name{s.Namespace, s.Service} }

// Equal tells whether two slices say the same.
func (s *EndpointSlice) Equal(t *EndpointSlice) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.Name == t.Name && s.Service == t.Service && slices.Equal(s.Ready, t.Ready) && slices.Equal(s.Terminating, t.Terminating)
}

// A sliceEndpoint is one endpoint of a slice. Of its addresses the first counts: Kubernetes gives the others no meaning.
type sliceEndpoint struct {
	address    string
	ipv4       netip.Addr // the address where it was read already
	addresses  int        // how many there are
	conditions sliceConditions
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

// isReady tells whether an endpoint is for every client.
func (c sliceConditions) isReady() bool { return c.ready != isFalse }

// isLastResort tells whether an endpoint that is not ready is still of use.
func (c sliceConditions) isLastResort() bool { return c.serving != isFalse && c.terminating == isTrue }

// slice reads a slice, leaving out entries that nobody could connect to.
func (b *body) slice(p *sliceParts) error {
	if b.label(labelOtherProxy) != nil || b.label(labelHeadless) != nil {
		p.excluded = true
		return nil
	}
	service, ok, err := b.serviceName()
	if err != nil {
		return err
	}
	if err := p.belongsTo(service, ok); err != nil {
		return err
	}
	var kind string
	if err := readString("addressType", b.AddressType, &kind); err != nil {
		return err
	}
	if p.kind, err = parseAddressType(kind); err != nil {
		return err
	}
	if err := p.addEndpoints(b); err != nil {
		return err
	}
	return eachOf("ports", b.Ports, p.addPort)
}

// An addressType says what the addresses of a slice are.
type addressType uint8

const (
	literalAddresses addressType = iota // "IP", of Kubernetes 1.16: of either family
	ipv4Addresses
	ipv6Addresses
	hostNames // "FQDN": Kubernetes' own proxy passes over these slices, and this one can dial them
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
	return 0, fmt.Errorf("unknown addressType %s", Quote(s))
}

var (
	errNotIPv4 = errors.New("not an IPv4 address")
	errNotIPv6 = errors.New("not an IPv6 address")
	errNotName = errors.New("not a host name")
	errNotAddr = errors.New("not an address")
)

// check reports why an address is not of a type.
func (t addressType) check(a Addr) error {
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
	ready, terminating []Addr // without a port
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

// addEndpoints reads the endpoints of a body. It is done in place, as in [body.read]: package json takes twice as long, and four times the memory.
func (p *sliceParts) addEndpoints(b *body) error {
	if isNull(b.Endpoints) {
		return nil
	}
	if b.Endpoints[0] != '[' {
		return unmarshal("endpoints", b.Endpoints, new([]struct{})) // which says what is wrong with it
	}
	for element := range elements([]byte(b.Endpoints)) {
		var e sliceEndpoint
		if err := e.read(element); err != nil {
			return err
		}
		p.addEndpoint(e)
	}
	return nil
}

// read finds the fields of an endpoint, as package json would.
func (e *sliceEndpoint) read(element []byte) error {
	if string(element) == "null" {
		return nil
	}
	if element[0] != '{' {
		return unmarshal("endpoints", element, new(struct{})) // which says what is wrong with it
	}
	var addresses, conditions json.RawMessage
	for key, raw := range members(element) {
		switch {
		case isKey(key, "addresses"):
			addresses = raw
		case isKey(key, "conditions"):
			conditions = raw
		}
	}
	if err := e.readAddresses(addresses); err != nil || isNull(conditions) {
		return err
	}
	return e.conditions.read(conditions)
}

func (e *sliceEndpoint) readAddresses(raw json.RawMessage) error {
	const field = "endpoints.addresses"
	if isNull(raw) {
		return nil
	}
	if raw[0] != '[' {
		return unmarshal(field, raw, new([]string))
	}
	for element := range elements([]byte(raw)) {
		address, err := stringOf(field, string(element))
		if err != nil {
			return err
		}
		if e.addresses++; e.addresses == 1 {
			e.address = address
		}
	}
	return nil
}

func (c *sliceConditions) read(raw json.RawMessage) error {
	const field = "endpoints.conditions"
	if raw[0] != '{' {
		return unmarshal(field, raw, new(struct{}))
	}
	for key, value := range members(raw) {
		var err error
		switch {
		case isKey(key, "ready"):
			err = readCondition(field+".ready", value, &c.ready)
		case isKey(key, "serving"):
			err = readCondition(field+".serving", value, &c.serving)
		case isKey(key, "terminating"):
			err = readCondition(field+".terminating", value, &c.terminating)
		}
		if err != nil {
			return err
		}
	}
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
}

func (e *sliceEndpoint) host() (Addr, error) {
	if e.ipv4.IsValid() {
		return Addr{IP: netip.AddrPortFrom(e.ipv4, 0)}, CheckUnicast(e.ipv4)
	}
	return parseHost(e.address)
}

var errNoAddress = errors.New("no address")

// slice makes a slice of what has been read.
func (p *sliceParts) slice(name Name) (*EndpointSlice, error) {
	s := &EndpointSlice{Name: name}
	if p.excluded {
		return s, nil
	}
	s.Service = p.service
	var err error
	s.Ready, s.Terminating, err = p.combine()
	return s, err
}

// combine gives every address with every port, by the names of the ports.
func (p *sliceParts) combine() (ready, terminating []PortAddrs, err error) {
	hosts := len(p.ready) + len(p.terminating)
	if n := len(p.ports) - 1; n > 0 && hosts > maxCombined/n { // the first port is what a plain list would have spelled out
		return nil, nil, fmt.Errorf("ports and endpoints combine to more than %d endpoints", maxCombined)
	}
	slices.SortFunc(p.ports, func(a, b slicePort) int {
		return cmp.Or(strings.Compare(a.name, b.name), cmp.Compare(a.number, b.number))
	})
	p.ports = slices.Compact(p.ports)
	return combine(p.ready, p.ports), combine(p.terminating, p.ports), nil
}

// combine gives every host with every port. The ports are sorted.
func combine(hosts []Addr, ports []slicePort) []PortAddrs {
	if len(hosts) == 0 || len(ports) == 0 {
		return nil
	}
	slices.SortFunc(hosts, Addr.compare)
	hosts = slices.Compact(hosts)
	byPort := make([]PortAddrs, 0, len(ports))
	for len(ports) > 0 {
		same := 1
		for same < len(ports) && ports[same].name == ports[0].name {
			same++
		}
		byPort = append(byPort, PortAddrs{ports[0].name, withPorts(hosts, ports[:same])})
		ports = ports[same:]
	}
	return byPort
}

// withPorts gives each host with each of some ports, sorted as both are.
func withPorts(hosts []Addr, ports []slicePort) Addrs {
	var packed strings.Builder
	packed.Grow(len(hosts) * len(ports) * packedIPv4)
	for _, host := range hosts {
		for _, port := range ports {
			host.withPort(port.number).pack(&packed)
		}
	}
	return Addrs{packed.String(), len(hosts) * len(ports)}
}

// warnings tells what was left out.
func (p *sliceParts) warnings() []Warning {
	warnings := p.leftOut.warnings()
	if len(p.sctp) > 0 {
		warnings = append(warnings, sctpWarning(p.sctp))
	}
	if p.spare > 0 {
		warnings = append(warnings, Warning(fmt.Sprintf("addresses beyond the first of their endpoint are ignored: %d", p.spare)))
	}
	return warnings
}
