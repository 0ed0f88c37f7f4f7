package decode

import (
	"google.golang.org/protobuf/encoding/protowire"

	"kubeproxy/registry"
	"kubeproxy/registry/decode/wire"
	"kubeproxy/registry/spelling"
)

// The numbers of the fields are those of generated.proto in k8s.io/api/core/v1, k8s.io/api/discovery/v1 and k8s.io/apimachinery.
// A field that comes again replaces what was there, or adds to it if it is a list or a message, as protobuf has it.

// Metadata is what the proxy reads of ObjectMeta.
type metadata struct {
	name registry.Name

	service                string // label kubernetes.io/service-name
	hasService             bool
	otherProxy, isHeadless bool // labels of that meaning are there

	annotations spelling.Annotations
}

// read reads the ObjectMeta of a kind of record. The name is most likely that of the key.
func (d *metadata) read(kind registry.Kind, key registry.Name, m wire.Message) error {
	for m.Next() {
		switch m.Number {
		case 1:
			d.name.Name = m.Known("metadata.name", key.Name)
		case 3:
			d.name.Namespace = m.Known("metadata.namespace", key.Namespace)
		case 11:
			label, value := m.MapEntry("metadata.labels")
			switch string(label) {
			case labelServiceName:
				d.service, d.hasService = m.TextOf("metadata.labels", value), true
			case labelOtherProxy:
				d.otherProxy = true
			case labelHeadless:
				d.isHeadless = true
			}
		case 12:
			annotation, value := m.MapEntry("metadata.annotations")
			if d.annotations.Counts(kind, annotation) {
				d.annotations.Set(string(annotation), m.TextOf("metadata.annotations", value))
			}
		}
	}
	return m.Err
}

// readService reads a Service.
func (s *statement) readService(key registry.Name, m wire.Message) error {
	var meta metadata
	spec := &s.service
	var clusterIP, serviceType string
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(meta.read(registry.KindService, key, m.Message("metadata")))
		case 2:
			m.Fail(spec.read(m.Message("spec"), &clusterIP, &serviceType))
		case 3:
			if spec.at != AtNode {
				m.Fail(spec.readStatus(m.Message("status")))
			}
		}
	}
	s.name, s.annotations = meta.name, meta.annotations
	spec.own[clusterAddresses] = append(spec.own[clusterAddresses], clusterIP)
	spec.nothing = meta.otherProxy || isHeadless("", clusterIP, serviceType)
	return m.Err
}

// read reads a ServiceSpec.
func (s *serviceSpec) read(m wire.Message, clusterIP, serviceType *string) error {
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(s.readPort(m.Message("spec.ports")))
		case 3:
			*clusterIP = m.Text("spec.clusterIP")
		case 4:
			*serviceType = m.Text("spec.type")
		case 5:
			s.readAddress(externalAddresses, "spec.externalIPs", &m)
		case 6:
			s.readAddress(externalAddresses, "spec.deprecatedPublicIPs", &m)
		case 18:
			s.readAddress(clusterAddresses, "spec.clusterIPs", &m)
		case 7:
			s.wishes.Affinity = m.Text("spec.sessionAffinity")
		case 11:
			s.externalPolicy = m.Text("spec.externalTrafficPolicy")
		case 12:
			s.wishes.HealthCheckNodePort = m.Integer("spec.healthCheckNodePort")
		case 22:
			s.internalPolicy = m.Text("spec.internalTrafficPolicy")
		case 23:
			s.wishes.Distribution = m.Text("spec.trafficDistribution")
		case 9:
			s.wishes.SourceRanges = append(s.wishes.SourceRanges, m.Text(registry.SourceRangesField))
		case 14:
			m.Fail(s.readAffinityConfig(m.Message("spec.sessionAffinityConfig")))
		}
	}
	return m.Err
}

// readAddress reads an address of the service, if that matters.
func (s *serviceSpec) readAddress(field int, path string, m *wire.Message) {
	if s.at != AtNode {
		s.own[field] = append(s.own[field], m.Text(path))
	}
}

// readStatus reads a ServiceStatus.
func (s *serviceSpec) readStatus(m wire.Message) error {
	for m.Next() {
		if m.Number != 1 {
			continue
		}
		balancer := m.Message("status.loadBalancer")
		for balancer.Next() {
			if balancer.Number != 1 {
				continue
			}
			var ip, mode string
			ingress := balancer.Message("status.loadBalancer.ingress")
			for ingress.Next() {
				switch ingress.Number {
				case 1:
					ip = ingress.Text("status.loadBalancer.ingress.ip")
				case 3:
					mode = ingress.Text("status.loadBalancer.ingress.ipMode")
				}
			}
			balancer.Fail(ingress.Err)
			s.addIngress(ip, mode)
		}
		m.Fail(balancer.Err)
	}
	return m.Err
}

// readPort reads a ServicePort.
func (s *serviceSpec) readPort(m wire.Message) error {
	var p servicePort
	for m.Next() {
		switch m.Number {
		case 1:
			p.Name = m.Text("spec.ports.name")
		case 2:
			p.Protocol = m.Text("spec.ports.protocol")
		case 3:
			p.Port = new(m.Integer("spec.ports.port"))
		case 5:
			p.NodePort = &nodePort{number: m.Integer("spec.ports.nodePort")}
		}
	}
	if len(s.ports) > MaxServicePorts { // it will be refused, and need not be kept
		s.morePorts++
		return m.Err
	}
	s.ports = append(s.ports, p)
	return m.Err
}

// readAffinityConfig reads a SessionAffinityConfig.
func (s *serviceSpec) readAffinityConfig(m wire.Message) error {
	for m.Next() {
		if m.Number != 1 {
			continue
		}
		client := m.Message("spec.sessionAffinityConfig.clientIP")
		for client.Next() {
			if client.Number == 1 {
				s.wishes.AffinityTimeout = new(client.Integer("spec.sessionAffinityConfig.clientIP.timeoutSeconds"))
			}
		}
		m.Fail(client.Err)
	}
	return m.Err
}

// readEndpoints reads Endpoints.
func (s *statement) readEndpoints(key registry.Name, m wire.Message) error {
	var meta metadata
	set := subset{node: s.node} // its lists are used again
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(meta.read(registry.KindEndpoints, key, m.Message("metadata")))
		case 2:
			m.Fail(set.read(m.Message("subsets")))
			if m.Err == nil {
				m.Fail(s.endpoints.addSubset(&set))
			}
		}
	}
	s.name, s.annotations = meta.name, meta.annotations
	return m.Err
}

// read reads an EndpointSubset.
func (s *subset) read(m wire.Message) error {
	s.Addresses.Value, s.Ports.Value = s.Addresses.Value[:0], s.Ports.Value[:0]
	for m.Next() {
		switch m.Number {
		case 1:
			var a address
			entry := m.Message("subsets.addresses")
			for entry.Next() {
				switch entry.Number {
				case 1:
					a.IP = entry.Text("subsets.addresses.ip")
				case 4:
					if entry.Is(protowire.BytesType, "subsets.addresses.nodeName", "string") && string(entry.Bytes()) == s.node.Name {
						a.NodeName = &s.node.Name
					}
				}
			}
			m.Fail(entry.Err)
			s.Addresses.Value = append(s.Addresses.Value, a)
		case 3:
			var p endpointPort
			entry := m.Message("subsets.ports")
			for entry.Next() {
				switch entry.Number {
				case 1:
					p.Name = entry.Text("subsets.ports.name")
				case 2:
					p.Port = new(entry.Integer("subsets.ports.port"))
				}
			}
			m.Fail(entry.Err)
			s.Ports.Value = append(s.Ports.Value, p)
		}
	}
	return m.Err
}

// readSlice reads an EndpointSlice. What its endpoints are comes after them, so they are read in a second pass.
func (s *statement) readSlice(key registry.Name, version string, object []byte) error {
	var meta metadata
	var kind string
	m := wire.Message{Data: object, Path: "object"}
	endpoints := 0
	for m.Next() {
		switch m.Number {
		case 1:
			m.Fail(meta.read(registry.KindEndpointSlice, key, m.Message("metadata")))
		case 2:
			endpoints++
		case 4:
			kind = m.Text("addressType")
		}
	}
	s.name, s.annotations = meta.name, meta.annotations
	p := &s.slice
	p.excluded = meta.otherProxy || meta.isHeadless
	if m.Err != nil || p.excluded {
		return m.Err
	}
	err := p.belongsTo(meta.service, meta.hasService)
	if err != nil {
		return err
	}
	if p.kind, err = parseAddressType(kind); err != nil {
		return err
	}
	p.ready = make([]registry.Addr, 0, endpoints)
	m = wire.Message{Data: object, Path: "object"}
	for m.Next() {
		switch m.Number {
		case 2:
			m.Fail(p.readEndpoint(version, m.Message("endpoints")))
		case 3:
			m.Fail(p.readPort(m.Message("ports")))
		}
	}
	return m.Err
}

// readEndpoint reads an Endpoint of a slice.
func (p *sliceParts) readEndpoint(version string, m wire.Message) error {
	var e sliceEndpoint
	zone, hints := protowire.Number(7), protowire.Number(8)
	if version != "discovery.k8s.io/v1" { // the zone was an entry of the topology
		zone, hints = 0, 7
	}
	for m.Next() {
		switch m.Number {
		case 1:
			if e.addresses++; e.addresses > 1 || m.Kind != protowire.BytesType {
				m.Text("endpoints.addresses")
			} else if e.ipv4 = parseIPv4(m.Bytes()); !e.ipv4.IsValid() {
				e.address = m.Text("endpoints.addresses")
			}
		case 2:
			conditions := m.Message("endpoints.conditions")
			for conditions.Next() {
				switch conditions.Number {
				case 1:
					e.conditions.ready = conditionOf(conditions.Bool("endpoints.conditions.ready"))
				case 2:
					e.conditions.serving = conditionOf(conditions.Bool("endpoints.conditions.serving"))
				case 3:
					e.conditions.terminating = conditionOf(conditions.Bool("endpoints.conditions.terminating"))
				}
			}
			m.Fail(conditions.Err)
		default:
			if p.node != (registry.Node{}) {
				p.readPlace(&e.place, &m, zone, hints)
			}
		}
	}
	if m.Err == nil {
		p.addEndpoint(e)
	}
	return m.Err
}

// readPlace reads a field of an Endpoint if it is about where the endpoint is. The fields of zone and hints differ between versions.
func (p *sliceParts) readPlace(place *registry.Place, m *wire.Message, zone, hints protowire.Number) {
	switch m.Number {
	case 5:
		if key, value := m.MapEntry("endpoints.topology"); string(key) == zoneLabel {
			p.node.SetZone(place, m.TextOf("endpoints.topology", value))
		}
	case 6:
		p.node.SetNode(place, m.Text("endpoints.nodeName"))
	case zone:
		p.node.SetZone(place, m.Text("endpoints.zone"))
	case hints:
		all := m.Message("endpoints.hints")
		for all.Next() {
			switch all.Number {
			case 1:
				p.node.HintZone(place, all.NameIn("endpoints.hints.forZones"))
			case 2:
				p.node.HintNode(place, all.NameIn("endpoints.hints.forNodes"))
			}
		}
		m.Fail(all.Err)
	}
}

// readPort reads an EndpointPort of a slice.
func (p *sliceParts) readPort(m wire.Message) error {
	var port servicePort
	for m.Next() {
		switch m.Number {
		case 1:
			port.Name = m.Text("ports.name")
		case 2:
			port.Protocol = m.Text("ports.protocol")
		case 3:
			port.Port = new(m.Integer("ports.port"))
		}
	}
	if m.Err != nil {
		return m.Err
	}
	return p.addPort(&port)
}
