package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// A Service is what is offered on every node. One without Ports is valid and has nothing to serve
// (headless, ExternalName).
//
// No two Ports have both Protocol and Number in common. Several may have the same Name, and with it
// the same endpoints: that is how a record without port names offers DNS on TCP and on UDP.
type Service struct {
	Name
	Created int64 // the create revision of its key: which of two services came first; set by the source
	Ports   []Port

	Affinity        Affinity
	AffinityTimeout time.Duration // how long a client is remembered after its last new connection; 0 with AffinityNone

	// Who may connect; empty means anyone. Each range is masked, no IPv4 range is in its IPv6
	// spelling, and they are sorted without repeats.
	SourceRanges []netip.Prefix
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

// Equal tells whether two services are the same in everything, Created included.
func (s *Service) Equal(t *Service) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.Name == t.Name && s.Created == t.Created && slices.Equal(s.Ports, t.Ports) &&
		s.Affinity == t.Affinity && s.AffinityTimeout == t.AffinityTimeout &&
		slices.Equal(s.SourceRanges, t.SourceRanges)
}

// serviceSpec is what the proxy reads of a service: of spec in the nested form, of the record
// itself in the flat one.
type serviceSpec struct {
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

type servicePort struct {
	Name     string `json:"name"`
	Protocol string `json:"protocol"`
	Port     *int64 `json:"port"`
}

// decodeService makes a service of a body.
func decodeService(name Name, b *body) (*Service, []Warning, error) {
	var spec serviceSpec
	if err := b.spec(&spec); err != nil {
		return nil, nil, err
	}
	s := &Service{Name: name}
	if spec.PortalIP == "None" || spec.ClusterIP == "None" || spec.Type == "ExternalName" {
		return s, nil, nil // its clients go by DNS, past any proxy
	}
	var err error
	if s.Ports, err = spec.ports(); err != nil {
		return nil, nil, err
	}
	affinity, err := spec.affinity(b, s)
	if err != nil {
		return nil, nil, err
	}
	ranges, err := spec.sourceRanges(b, s)
	if err != nil {
		return nil, nil, err
	}
	return s, append(affinity, ranges...), nil
}

// ports gives the ports that the service is to be served on: at least one, none of them twice.
func (s *serviceSpec) ports() ([]Port, error) {
	listed := s.Ports.value
	if len(listed) == 0 && s.Port != nil {
		listed = []servicePort{{s.PortName, s.Protocol, s.Port}}
	}
	if len(listed) == 0 {
		return nil, errors.New("no port")
	}
	type socket struct {
		protocol Protocol
		number   uint16
	}
	seen := make(map[socket]struct{}, len(listed))
	ports := make([]Port, 0, len(listed))
	for _, l := range listed {
		number, err := portNumber(l.Port)
		if err != nil {
			return nil, err
		}
		protocol, err := parseProtocol(l.Protocol)
		if err != nil {
			return nil, err
		}
		so := socket{protocol, number}
		if _, again := seen[so]; again {
			return nil, fmt.Errorf("%v port %d is listed twice", protocol, number)
		}
		seen[so] = struct{}{}
		ports = append(ports, Port{l.Name, protocol, number})
	}
	return ports, nil
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
