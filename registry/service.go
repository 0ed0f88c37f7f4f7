package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Service is what is offered on every node. One without Ports is valid and has nothing to serve
// (headless, ExternalName).
//
// No two Ports have both Protocol and Number in common. Several may have the same Name, and with it
// the same endpoints: that is how a record without port names offers DNS on TCP and on UDP.
type Service struct {
	Name
	Rank    int   // of the source that it is from: 0 for the first; set by package config
	Created int64 // stands for one life of its key: in etcd the create revision; set by the source
	Ports   []Port

	// Since has a revision for each of Ports: from it on, the source knows the record to claim that port without a break; see
	// [Service.Date]. nil means from Created on.
	Since []int64

	Terms
}

// A Port is one port that a service offers on every node. Its Number is the port that clients
// connect to: in v0.4 that is a port of the node itself.
type Port struct {
	Name     string // joins it to the endpoints of the same port name
	Protocol Protocol
	Number   uint16 // never 0
}

// A Protocol is a transport that the proxy can carry. The zero value is TCP, as a record that
// names none means (D15).
type Protocol uint8

// The protocols that v0.4 served.
const (
	TCP Protocol = iota
	UDP
)

// String gives the protocol as package net and the logs write it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	}
	return fmt.Sprintf("protocol(%d)", uint8(p))
}

// ClaimedSince returns the revision from which on the record is known to claim Ports[i]. It decides which of two services that want
// one port comes first.
func (s *Service) ClaimedSince(i int) int64 {
	if i < len(s.Since) {
		return s.Since[i]
	}
	return s.Created
}

// Date sets Since of a record that was read at a revision: a port that the record before it claimed, too, keeps its revision; any
// other port has this one. before is nil if there is none, or if it belongs to an earlier life of the key. A source that reads a
// record for the first time gives its mod revision: which ports older values had is not known.
func (s *Service) Date(before *Service, revision int64) {
	s.Since = make([]int64, len(s.Ports))
	var known map[socket]int64
	if before != nil && len(s.Ports) > 0 {
		known = make(map[socket]int64, len(before.Ports))
		for i, p := range before.Ports {
			known[socket{p.Protocol, p.Number}] = before.ClaimedSince(i)
		}
	}
	for i, p := range s.Ports {
		s.Since[i] = revision
		if since, ok := known[socket{p.Protocol, p.Number}]; ok {
			s.Since[i] = min(since, revision)
		}
	}
}

// Equal reports whether two services are the same in everything, Created included, but for Since and Rank: these are not
// what the record says.
func (s *Service) Equal(t *Service) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.Name == t.Name && s.Created == t.Created && slices.Equal(s.Ports, t.Ports) && s.Terms.Equal(&t.Terms)
}

// A serviceSpec is what a record says of a service.
type serviceSpec struct {
	nothing   bool // it says that there is nothing to serve; then the rest does not matter
	ports     []servicePort
	morePorts int // how many there are beside those

	affinity        string
	affinityTimeout *int64 // in seconds

	ranges      []string          // of addresses that may connect
	annotations map[string]string // those that count

	odd []Warning // what there is to say about its encoding
}

// A servicePort is one port of a service, or of an endpoint slice.
type servicePort struct {
	Name     string    `json:"name"`
	Protocol string    `json:"protocol"`
	Port     *int64    `json:"port"`
	NodePort *nodePort `json:"nodePort"` // since v0.17
}

// A nodePort is the port that Kubernetes offers on every node. Kubernetes writes 0 for none.
type nodePort struct {
	number int64
	err    error // what is wrong with it, which matters only to who asks for it
}

// UnmarshalJSON reads whatever is there.
func (n *nodePort) UnmarshalJSON(b []byte) error {
	n.err = unmarshal("nodePort", b, &n.number)
	return nil
}

// check gives the number; ok is false if there is none.
func (n *nodePort) check() (number uint16, ok bool, err error) {
	if n == nil || n.err == nil && n.number == 0 {
		return 0, false, nil
	}
	if n.err != nil {
		return 0, false, n.err
	}
	if number, err = portNumber(&n.number); err != nil {
		return 0, false, fmt.Errorf("as nodePort: %w", err)
	}
	return number, true, nil
}

// service makes a service of what a record says. It counts the ports that were left out because they have no nodePort.
func (spec *serviceSpec) service(name Name, nodePorts bool) (_ *Service, without int, _ []Warning, _ error) {
	s := &Service{Name: name}
	if spec.nothing {
		return s, 0, nil, nil
	}
	ports := portList{nodePorts: nodePorts}
	if err := ports.add(spec.ports, spec.morePorts); err != nil {
		return nil, 0, nil, err
	}
	s.Ports = ports.ports
	warnings, err := spec.setTerms(&s.Terms)
	if err != nil {
		return nil, 0, nil, err
	}
	return s, ports.without, slices.Concat(ports.warnings(), spec.odd, warnings), nil
}

// A jsonSpec is what the proxy reads of a service in JSON: of spec in the nested form, of the record
// itself in the flat one.
type jsonSpec struct {
	Ports last[[]servicePort] `json:"ports"` // since v0.15

	SessionAffinity       string          `json:"sessionAffinity"`       // since v0.8
	SessionAffinityConfig json.RawMessage `json:"sessionAffinityConfig"` // since v1.8

	LoadBalancerSourceRanges json.RawMessage `json:"loadBalancerSourceRanges"` // since v1.3

	// The one port of the formats before v0.15. Later masters go on writing it for older readers.
	Port     *int64 `json:"port"`
	Protocol string `json:"protocol"`
	PortName string `json:"portName"`

	// What tells that there is nothing to proxy.
	PortalIP  string `json:"portalIP"`  // until v1beta3
	ClusterIP string `json:"clusterIP"` // its name in v1
	Type      string `json:"type"`
}

// service reads the fields of a service, wherever this version has them, and none that it does not need.
func (b *body) service(s *serviceSpec) (err error) {
	var spec jsonSpec
	if b.nested {
		err = b.field("spec", b.Spec, &spec)
	} else {
		err = unmarshal("", b.value, &spec)
	}
	if err != nil {
		return err
	}
	if isHeadless(spec.PortalIP, spec.ClusterIP, spec.Type) || b.label(labelOtherProxy) != nil {
		s.nothing = true
		return nil
	}
	s.ports = spec.Ports.value
	if len(s.ports) == 0 && spec.Port != nil {
		s.ports = []servicePort{{Name: spec.PortName, Protocol: spec.Protocol, Port: spec.Port}}
	}
	s.affinity = spec.SessionAffinity
	if s.affinityTimeout, err = b.affinityTimeout(&spec); err != nil {
		return err
	}
	if err = b.sourceRanges(&spec, s); err != nil {
		return err
	}
	s.annotations, err = b.annotationsThatCount()
	return err
}

// isHeadless tells a service whose clients go by DNS, past any proxy.
func isHeadless(portalIP, clusterIP, serviceType string) bool {
	return portalIP == "None" || clusterIP == "None" || serviceType == "ExternalName"
}

// MaxServicePorts is how many ports one service may list. A record that lists more is rejected: one
// service must not be able to take a node's ports for itself.
const MaxServicePorts = 1000

// maxPortName is how long the name of a port may be (RFC 1035, 2.3.4: a label).
const maxPortName = 63

// A portList gathers the ports that a service offers. The proxy carries no SCTP: a port of that protocol is left out, with a warning, and
// the others are served.
type portList struct {
	nodePorts bool // see [Decoder]

	ports   []Port
	seen    map[socket]struct{} // nil while there are few
	sctp    []string            // ports that were left out
	without int                 // ports that were left out because they have no nodePort
}

// A socket is what one service cannot have twice.
type socket struct {
	protocol Protocol
	number   uint16
}

// add adds the ports of a record. It lists at least one, and none of them twice.
func (l *portList) add(listed []servicePort, more int) error {
	switch n := len(listed) + more; {
	case n == 0:
		return errors.New("no port")
	case n > MaxServicePorts:
		return fmt.Errorf("%d ports are listed, more than %d", n, MaxServicePorts)
	}
	l.ports = make([]Port, 0, len(listed))
	if len(listed) > few {
		l.seen = make(map[socket]struct{}, len(listed))
	}
	for i := range listed {
		if err := l.addPort(&listed[i]); err != nil {
			return err
		}
	}
	if len(l.ports) == 0 {
		l.ports = nil // as of a service that lists none
	}
	return nil
}

func (l *portList) addPort(p *servicePort) error {
	number, err := portNumber(p.Port)
	if err != nil {
		return err
	}
	if err := checkPortName(p.Name); err != nil {
		return err
	}
	if isSCTP(p.Protocol) {
		l.sctp = append(l.sctp, strconv.Itoa(int(number)))
		return nil
	}
	protocol, err := parseProtocol(p.Protocol)
	if err != nil {
		return err
	}
	if l.nodePorts {
		var ok bool
		if number, ok, err = p.NodePort.check(); err != nil {
			return err
		} else if !ok {
			l.without++
			return nil
		}
	}
	if l.again(socket{protocol, number}) {
		return fmt.Errorf("%v port %d is listed twice", protocol, number)
	}
	l.ports = append(l.ports, Port{p.Name, protocol, number})
	return nil
}

// again tells whether there is such a port already, and remembers it.
func (l *portList) again(s socket) bool {
	if l.seen == nil {
		return slices.ContainsFunc(l.ports, func(p Port) bool { return p.Protocol == s.protocol && p.Number == s.number })
	}
	_, again := l.seen[s]
	l.seen[s] = struct{}{}
	return again
}

func (l *portList) warnings() []Warning {
	if len(l.sctp) == 0 {
		return nil
	}
	return []Warning{sctpWarning(l.sctp)}
}

// isSCTP tells a protocol that Kubernetes has and this proxy does not carry.
func isSCTP(protocol string) bool { return strings.EqualFold(protocol, "SCTP") }

// sctpWarning tells that these ports are left out.
func sctpWarning(ports []string) Warning {
	text := "SCTP is not supported, and these ports are left out: " + strings.Join(ports[:min(len(ports), maxNamed)], ", ")
	if more := len(ports) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return Warning(text)
}

// checkPortName reports why a port cannot have a name, which records of both kinds spell out.
func checkPortName(name string) error {
	if len(name) > maxPortName {
		return fmt.Errorf("port name %s is longer than %d bytes", quote(name, maxQuotedShort), maxPortName)
	}
	return nil
}

// parseProtocol reads a protocol in any letter case: masters stored what the user had typed.
func parseProtocol(s string) (Protocol, error) {
	switch {
	case s == "", strings.EqualFold(s, "TCP"): // D15: v0.4 kept a service without protocol and never served it
		return TCP, nil
	case strings.EqualFold(s, "UDP"):
		return UDP, nil
	}
	return 0, fmt.Errorf("unsupported protocol %s", Quote(s))
}
