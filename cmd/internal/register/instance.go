package register

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// An Instance is one program that serves some ports of a service at one address.
type Instance struct {
	Service registry.Name
	Host    string // the name of the machine, which sets two instances apart that have the same private address
	Address netip.Addr
	Ports   []Port
	Weight  int // the share of clients that it is given, from 0 to [registry.MaxWeight]; others have 1 if they say nothing
}

// A Port is one port of an instance. Its name is that of the service's port.
type Port struct {
	Name     string
	Number   uint16
	Protocol registry.Protocol
}

// ParsePort reads a port in the form [NAME=]NUMBER[/tcp|/udp].
func ParsePort(s string) (Port, error) {
	name, rest, named := strings.Cut(s, "=")
	if !named {
		name, rest = "", s
	}
	number, protocol, _ := strings.Cut(rest, "/")
	p := Port{Name: name}
	switch protocol {
	case "", "tcp":
		p.Protocol = registry.TCP
	case "udp":
		p.Protocol = registry.UDP
	default:
		return p, fmt.Errorf("protocol %s is neither tcp nor udp", registry.Quote(protocol))
	}
	n, err := strconv.ParseUint(number, 10, 16)
	if err != nil || n == 0 {
		return p, fmt.Errorf("port %s is not a number from 1 to 65535", registry.Quote(number))
	}
	p.Number = uint16(n)
	return p, nil
}

// String gives the port in the form that [ParsePort] reads.
func (p Port) String() string {
	s := strconv.Itoa(int(p.Number))
	if p.Name != "" {
		s = p.Name + "=" + s
	}
	if p.Protocol == registry.UDP {
		s += "/udp"
	}
	return s
}

// Key is the key of the instance's record. It depends on the identity of the instance alone.
func (in *Instance) Key() string {
	identity := fmt.Sprintf("%s|%s|%v", in.Host, in.Address, in.Ports)
	sum := sha256.Sum256([]byte(identity))
	return registry.EndpointSlicesPrefix + in.Service.Namespace + "/" + in.Service.Name + "-" + hex.EncodeToString(sum[:5])
}

// A slice is an EndpointSlice as far as registrars write one (discovery.k8s.io/v1).
type slice struct {
	Kind        string          `json:"kind"`
	APIVersion  string          `json:"apiVersion"`
	Metadata    metadata        `json:"metadata"`
	AddressType string          `json:"addressType"`
	Endpoints   []sliceEndpoint `json:"endpoints"`
	Ports       []slicePort     `json:"ports"`
}

type metadata struct {
	Name        string            `json:"name"`
	Namespace   string            `json:"namespace"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type sliceEndpoint struct {
	Addresses  []string   `json:"addresses"`
	Conditions conditions `json:"conditions"`
	NodeName   string     `json:"nodeName,omitempty"`
}

type conditions struct {
	Ready       bool `json:"ready"`
	Serving     bool `json:"serving"`
	Terminating bool `json:"terminating"`
}

type slicePort struct {
	Name     string `json:"name"`
	Port     uint16 `json:"port"`
	Protocol string `json:"protocol"`
}

// A state is what a record says of its instance.
type state uint8

const (
	ready       state = iota
	failing           // its check fails: for no client
	terminating       // it is about to stop, and still answers: where no other endpoint is ready
)

func (s state) conditions() conditions {
	return conditions{Ready: s == ready, Serving: s != failing, Terminating: s == terminating}
}

// record is the value of the instance's key, as one run of a registrar writes it.
func (in *Instance) record(owner string, now state) []byte {
	s := slice{
		Kind:       "EndpointSlice",
		APIVersion: "discovery.k8s.io/v1",
		Metadata: metadata{
			Name:        in.Key()[strings.LastIndexByte(in.Key(), '/')+1:],
			Namespace:   in.Service.Namespace,
			Labels:      map[string]string{"kubernetes.io/service-name": in.Service.Name},
			Annotations: map[string]string{registry.RegistrarAnnotation: owner},
		},
		AddressType: "IPv4",
		Endpoints: []sliceEndpoint{{
			Addresses:  []string{in.Address.String()},
			Conditions: now.conditions(),
			NodeName:   in.Host,
		}},
	}
	if in.Address.Is6() {
		s.AddressType = "IPv6"
	}
	if in.Weight != 1 {
		s.Metadata.Annotations[registry.WeightAnnotation] = strconv.Itoa(in.Weight)
	}
	for _, p := range in.Ports {
		s.Ports = append(s.Ports, slicePort{p.Name, p.Number, strings.ToUpper(p.Protocol.String())})
	}
	value, err := json.Marshal(s)
	if err != nil {
		panic(err) // it holds strings, numbers and booleans
	}
	return value
}

// NodeOf returns the name of the machine that a record of a registrar is about; "" if it says none.
func NodeOf(value []byte) string {
	var s slice
	if json.Unmarshal(value, &s) != nil || len(s.Endpoints) == 0 {
		return ""
	}
	return s.Endpoints[0].NodeName
}

// readOwner returns which run of a registrar wrote a record, and what it says. A record of another kind has no owner.
func readOwner(value []byte) (owner string, now state) {
	var s slice
	if json.Unmarshal(value, &s) != nil || len(s.Endpoints) == 0 {
		return "", failing
	}
	switch c := s.Endpoints[0].Conditions; {
	case c.Ready:
		now = ready
	case c.Terminating:
		now = terminating
	default:
		now = failing
	}
	return s.Metadata.Annotations[registry.RegistrarAnnotation], now
}

// Validate returns why the instance cannot be registered; nil if it can. The decoder of the registry decides, so that nothing is
// written that proxies would refuse.
func (in *Instance) Validate() error {
	switch {
	case len(in.Ports) == 0:
		return errors.New("no port is given")
	case !in.Address.IsValid():
		return errors.New("no address is given")
	}
	if err := in.Service.Check(); err != nil {
		return fmt.Errorf("-service: %w", err)
	}
	seen := make(map[string]bool)
	for _, p := range in.Ports {
		if registry.Label(p.Name) != p.Name {
			return fmt.Errorf("-port: name %s has characters that are not printed", registry.Quote(p.Name))
		}
		if seen[p.Name] {
			return errors.New("two ports have the same name: each port needs one of its own, as in http=8080")
		}
		seen[p.Name] = true
	}
	_, warnings, err := decode.Decode(in.Key(), in.record("", ready))
	if err == nil && len(warnings) > 0 {
		err = errors.New(string(warnings[0]))
	}
	return err
}
