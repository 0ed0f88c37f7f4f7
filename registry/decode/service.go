package decode

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kubeproxy/registry"
)

// A serviceSpec is what a record says of a service.
type serviceSpec struct {
	nothing   bool // it says that there is nothing to serve; then the rest does not matter
	ports     []servicePort
	morePorts int // how many there are beside those

	at  Addresses               // where the ports are to be; set before the record is read
	own [addressFields][]string // addresses that the record gives the service, if that matters

	wishes registry.Wishes

	externalPolicy, internalPolicy string // which endpoints are for clients of its node ports, and of its own ports

	odd []registry.Warning // what there is to say about its encoding
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
func (spec *serviceSpec) service(name registry.Name, nodePorts bool) (_ *registry.Service, without int, _ []registry.Warning, _ error) {
	s := &registry.Service{Name: name}
	if spec.nothing {
		return s, 0, nil, nil
	}
	ports := portList{nodePorts: nodePorts, both: spec.at != AtNode}
	if err := ports.add(spec.ports, spec.morePorts); err != nil {
		return nil, 0, nil, err
	}
	if spec.wishes.TrafficPolicy = spec.internalPolicy; nodePorts || spec.at != AtNode {
		spec.wishes.TrafficPolicy = spec.externalPolicy
	} else {
		spec.wishes.HealthCheckNodePort = 0 // which is about the node ports
	}
	terms, warnings, err := spec.wishes.Terms(ports.ports)
	if err != nil {
		return nil, 0, nil, err
	}
	odd, err := spec.place(s, &terms, &ports)
	if err != nil {
		return nil, 0, nil, err
	}
	s.SetTerms(terms)
	return s, ports.without, slices.Concat(ports.warnings(), spec.odd, warnings, odd), nil
}

// MaxServicePorts is how many ports one service may list. A record that lists more is rejected: one
// service must not be able to take a node's ports for itself.
const MaxServicePorts = 1000

// A portList gathers the ports that a service offers. The proxy carries no SCTP: a port of that protocol is left out, with a warning, and
// the others are served.
type portList struct {
	nodePorts bool // see [Decoder]
	both      bool // node ports are offered beside the ports

	ports   []registry.Port
	onNode  []registry.Port                  // the node ports beside them
	seen    map[registry.ListenerID]struct{} // nil while there are few
	sctp    []string                         // ports that were left out
	without int                              // ports that were left out because they have no nodePort
}

// add adds the ports of a record. It lists at least one, and none of them twice.
func (l *portList) add(listed []servicePort, more int) error {
	switch n := len(listed) + more; {
	case n == 0:
		return errors.New("no port")
	case n > MaxServicePorts:
		return fmt.Errorf("%d ports are listed, more than %d", n, MaxServicePorts)
	}
	l.ports = make([]registry.Port, 0, len(listed))
	if len(listed) > few {
		l.seen = make(map[registry.ListenerID]struct{}, len(listed))
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
	if l.again(registry.ListenerID{Protocol: protocol, Number: number}) {
		return fmt.Errorf("%v port %d is listed twice", protocol, number)
	}
	l.ports = append(l.ports, registry.Port{Name: p.Name, Protocol: protocol, Number: number})
	if !l.both {
		return nil
	}
	if number, ok, err := p.NodePort.check(); err != nil {
		return err
	} else if ok {
		l.onNode = append(l.onNode, registry.Port{Name: p.Name, Protocol: protocol, Number: number})
	}
	return nil
}

// again reports whether there is such a port already, and remembers it.
func (l *portList) again(s registry.ListenerID) bool {
	if l.seen == nil {
		return slices.ContainsFunc(l.ports, func(p registry.Port) bool { return p.Protocol == s.Protocol && p.Number == s.Number })
	}
	_, again := l.seen[s]
	l.seen[s] = struct{}{}
	return again
}

func (l *portList) warnings() []registry.Warning {
	if len(l.sctp) == 0 {
		return nil
	}
	return []registry.Warning{sctpWarning(l.sctp)}
}

// isSCTP tells a protocol that Kubernetes has and this proxy does not carry.
func isSCTP(protocol string) bool { return strings.EqualFold(protocol, "SCTP") }

// sctpWarning tells that these ports are left out.
func sctpWarning(ports []string) registry.Warning {
	text := "SCTP is not supported, and these ports are left out: " + strings.Join(ports[:min(len(ports), maxNamed)], ", ")
	if more := len(ports) - maxNamed; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return registry.Warning(text)
}

// parseProtocol reads a protocol in any letter case: masters stored what the user had typed.
func parseProtocol(s string) (registry.Protocol, error) {
	switch {
	case s == "", strings.EqualFold(s, "TCP"): // D15: v0.4 kept a service without protocol and never served it
		return registry.TCP, nil
	case strings.EqualFold(s, "UDP"):
		return registry.UDP, nil
	}
	return 0, fmt.Errorf("unsupported protocol %s", registry.Quote(s))
}
