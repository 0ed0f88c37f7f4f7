package decode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/registry/spelling"
)

// label gives the value of a label as it is written, nil if there is none. Labels of other people may hold anything, and so
// may a field of that name which is no object.
func (b *body) label(name string) (raw json.RawMessage) {
	if len(b.labels) == 0 || b.labels[0] != '{' {
		return nil
	}
	for key, value := range members(b.labels) {
		if string(key) == name { // in this letter case only: labels are no fields
			raw = value
		}
	}
	return raw
}

// readAnnotations reads the annotations that count in a kind of record. Others may hold anything, and so may a field of that name which is no
// object.
func (b *body) readAnnotations(kind registry.Kind, all *spelling.Annotations) error {
	if len(b.annotations) == 0 || b.annotations[0] != '{' {
		return nil
	}
	for key, raw := range members(b.annotations) {
		if !all.Counts(kind, key) {
			continue
		}
		var value string
		if err := readString("annotations."+string(key), raw, &value); err != nil {
			return err
		}
		if !isNull(raw) {
			all.Set(string(key), value)
		}
	}
	return nil
}

// readJSON reads a value that is JSON.
func (s *statement) readJSON(kind registry.Kind, value []byte) error {
	var b body
	err := b.open(kind, value)
	if err != nil {
		return err
	}
	if s.name, err = b.identity(); err != nil {
		return err
	}
	switch kind {
	case registry.KindService:
		err = b.service(&s.service)
	case registry.KindEndpoints:
		err = b.endpoints(&s.endpoints)
	default:
		err = b.slice(&s.slice)
	}
	if err != nil || s.service.nothing || s.slice.excluded {
		return err
	}
	return b.readAnnotations(kind, &s.annotations)
}

// endpoints reads endpoints, leaving out entries that no client could connect to.
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

// isListOf reports whether the first element of a JSON array begins with b.
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
		a, err := registry.ParseAddr(s)
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
		a, err := registry.ParseHost(p.IP)
		if err != nil {
			c.leaveOut(1, p.IP, err)
			return nil
		}
		port.add(a.WithPort(number))
		return nil
	})
}

// affinityTimeout reads how long clients are to be remembered, in seconds; nil: the record does not say.
func (b *body) affinityTimeout(spec *jsonSpec) (*int64, error) {
	if spec.SessionAffinity != "ClientIP" || !b.nested || spec.SessionAffinityConfig == nil { // the flat form had gone when the timeout came
		return nil, nil
	}
	var config struct {
		ClientIP struct {
			TimeoutSeconds *int64 `json:"timeoutSeconds"`
		} `json:"clientIP"`
	}
	err := b.field("spec.sessionAffinityConfig", spec.SessionAffinityConfig, &config)
	return config.ClientIP.TimeoutSeconds, err
}

// nearness reads which endpoints clients are given.
func (b *body) nearness(spec *jsonSpec, s *serviceSpec) (err error) {
	if !b.nested {
		return nil
	}
	if !isNull(spec.HealthCheckNodePort) {
		var port int64 // and not s itself, which would have to be on the heap
		err = unmarshal("spec.healthCheckNodePort", spec.HealthCheckNodePort, &port)
		s.wishes.HealthCheckNodePort = port
	}
	return cmp.Or(err, readString("spec.externalTrafficPolicy", spec.ExternalTrafficPolicy, &s.externalPolicy),
		readString("spec.internalTrafficPolicy", spec.InternalTrafficPolicy, &s.internalPolicy),
		readString("spec.trafficDistribution", spec.TrafficDistribution, &s.wishes.Distribution))
}

// sourceRanges reads the list in the spec of a service of the ranges that may connect.
func (b *body) sourceRanges(spec *jsonSpec, s *serviceSpec) error {
	switch {
	case isNull(spec.LoadBalancerSourceRanges):
	case b.nested:
		var listed []string // and not s itself, which would have to be on the heap
		if err := unmarshal(registry.SourceRangesField, spec.LoadBalancerSourceRanges, &listed); err != nil {
			return err
		}
		s.wishes.SourceRanges = listed
	default:
		s.odd = append(s.odd, "loadBalancerSourceRanges is no field of this version and does not count; the annotation of that name does")
	}
	return nil
}

// A jsonSpec is what the proxy reads of a service in JSON: of spec in the nested form, of the record
// itself in the flat one.
type jsonSpec struct {
	Ports last[[]servicePort] `json:"ports"` // since v0.15

	SessionAffinity       string          `json:"sessionAffinity"`       // since v0.8
	SessionAffinityConfig json.RawMessage `json:"sessionAffinityConfig"` // since v1.8

	// In the nested form alone: in the flat one they may hold anything.
	ExternalTrafficPolicy    json.RawMessage `json:"externalTrafficPolicy"` // since v1.7
	InternalTrafficPolicy    json.RawMessage `json:"internalTrafficPolicy"` // since v1.21
	TrafficDistribution      json.RawMessage `json:"trafficDistribution"`   // since v1.30
	HealthCheckNodePort      json.RawMessage `json:"healthCheckNodePort"`
	LoadBalancerSourceRanges json.RawMessage `json:"loadBalancerSourceRanges"` // since v1.3

	// The one port of the formats before v0.15. Later masters go on writing it for older readers.
	Port     *int64 `json:"port"`
	Protocol string `json:"protocol"`
	PortName string `json:"portName"`

	// What tells that there is nothing to proxy.
	PortalIP  string `json:"portalIP"`  // until v1beta3
	ClusterIP string `json:"clusterIP"` // its name in v1
	Type      string `json:"type"`

	// Addresses, beside those two, which are read if they matter.
	ClusterIPs          json.RawMessage `json:"clusterIPs"`          // since v1.20
	PublicIPs           json.RawMessage `json:"publicIPs"`           // until v1beta3
	DeprecatedPublicIPs json.RawMessage `json:"deprecatedPublicIPs"` // their name in v1
	ExternalIPs         json.RawMessage `json:"externalIPs"`         // since v1.1
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
	s.ports = spec.Ports.Value
	if len(s.ports) == 0 && spec.Port != nil {
		s.ports = []servicePort{{Name: spec.PortName, Protocol: spec.Protocol, Port: spec.Port}}
	}
	s.wishes.Affinity = spec.SessionAffinity
	if s.wishes.AffinityTimeout, err = b.affinityTimeout(&spec); err != nil {
		return err
	}
	if err := b.nearness(&spec, s); err != nil {
		return err
	}
	if s.at != AtNode {
		if err := b.addresses(&spec, s); err != nil {
			return err
		}
	}
	return b.sourceRanges(&spec, s)
}

// addresses reads the addresses of a service.
func (b *body) addresses(spec *jsonSpec, s *serviceSpec) error {
	own := &s.own
	own[clusterAddresses] = []string{spec.PortalIP, spec.ClusterIP}
	prefix := ""
	if b.nested {
		prefix = "spec."
	}
	for _, list := range [...]struct {
		name  string
		raw   json.RawMessage
		field int
	}{
		{"clusterIPs", spec.ClusterIPs, clusterAddresses}, {"externalIPs", spec.ExternalIPs, externalAddresses},
		{"publicIPs", spec.PublicIPs, externalAddresses}, {"deprecatedPublicIPs", spec.DeprecatedPublicIPs, externalAddresses},
	} {
		var listed []string
		if isNull(list.raw) || !b.nested && list.name != "publicIPs" { // the one list of the flat form
			continue
		}
		if err := unmarshal(prefix+list.name, list.raw, &listed); err != nil {
			return err
		}
		own[list.field] = append(own[list.field], listed...)
	}
	if !b.nested || isNull(b.Status) {
		return nil
	}
	var status struct {
		LoadBalancer struct {
			Ingress []struct {
				IP     string `json:"ip"`
				IPMode string `json:"ipMode"` // since v1.29
			} `json:"ingress"`
		} `json:"loadBalancer"`
	}
	err := b.field("status", b.Status, &status)
	for _, i := range status.LoadBalancer.Ingress {
		s.addIngress(i.IP, i.IPMode)
	}
	return err
}
