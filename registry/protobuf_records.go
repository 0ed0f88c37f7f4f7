package registry

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// The numbers of the fields are those of generated.proto in k8s.io/api/core/v1, k8s.io/api/discovery/v1 and k8s.io/apimachinery.
// A field that comes again replaces what was there, or adds to it if it is a list or a message, as protobuf has it.

// Metadata is what the proxy reads of ObjectMeta.
type metadata struct {
	name Name

	service                string // label kubernetes.io/service-name
	hasService             bool
	otherProxy, isHeadless bool // labels of that meaning are there

	annotations map[string]string // those that count
}

// read reads ObjectMeta. The name is most likely that of the key.
func (d *metadata) read(key Name, m message) error {
	for m.next() {
		switch m.number {
		case 1:
			d.name.Name = m.known("metadata.name", key.Name)
		case 3:
			d.name.Namespace = m.known("metadata.namespace", key.Namespace)
		case 11:
			label, value := m.mapEntry("metadata.labels")
			switch string(label) {
			case labelServiceName:
				d.service, d.hasService = m.textOf("metadata.labels", value), true
			case labelOtherProxy:
				d.otherProxy = true
			case labelHeadless:
				d.isHeadless = true
			}
		case 12:
			annotation, value := m.mapEntry("metadata.annotations")
			if slices.Contains(annotationsThatCount[:], string(annotation)) {
				if d.annotations == nil {
					d.annotations = make(map[string]string)
				}
				d.annotations[string(annotation)] = m.textOf("metadata.annotations", value)
			}
		}
	}
	return m.err
}

// readService reads a Service.
func (s *statement) readService(key Name, m message) error {
	var meta metadata
	spec := &s.service
	var clusterIP, serviceType string
	for m.next() {
		switch m.number {
		case 1:
			m.fail(meta.read(key, m.message("metadata")))
		case 2:
			m.fail(spec.read(m.message("spec"), &clusterIP, &serviceType))
		}
	}
	s.name = meta.name
	spec.nothing = meta.otherProxy || isHeadless("", clusterIP, serviceType)
	spec.annotations = meta.annotations
	return m.err
}

// read reads a ServiceSpec.
func (s *serviceSpec) read(m message, clusterIP, serviceType *string) error {
	for m.next() {
		switch m.number {
		case 1:
			m.fail(s.readPort(m.message("spec.ports")))
		case 3:
			*clusterIP = m.text("spec.clusterIP")
		case 4:
			*serviceType = m.text("spec.type")
		case 7:
			s.affinity = m.text("spec.sessionAffinity")
		case 9:
			s.ranges = append(s.ranges, m.text(rangesField))
		case 14:
			m.fail(s.readAffinityConfig(m.message("spec.sessionAffinityConfig")))
		}
	}
	return m.err
}

// readPort reads a ServicePort.
func (s *serviceSpec) readPort(m message) error {
	var p servicePort
	for m.next() {
		switch m.number {
		case 1:
			p.Name = m.text("spec.ports.name")
		case 2:
			p.Protocol = m.text("spec.ports.protocol")
		case 3:
			p.Port = new(m.integer("spec.ports.port"))
		case 5:
			p.NodePort = &nodePort{number: m.integer("spec.ports.nodePort")}
		}
	}
	if len(s.ports) > MaxServicePorts { // it will be refused, and need not be kept
		s.morePorts++
		return m.err
	}
	s.ports = append(s.ports, p)
	return m.err
}

// readAffinityConfig reads a SessionAffinityConfig.
func (s *serviceSpec) readAffinityConfig(m message) error {
	for m.next() {
		if m.number != 1 {
			continue
		}
		client := m.message("spec.sessionAffinityConfig.clientIP")
		for client.next() {
			if client.number == 1 {
				s.affinityTimeout = new(client.integer("spec.sessionAffinityConfig.clientIP.timeoutSeconds"))
			}
		}
		m.fail(client.err)
	}
	return m.err
}

// readEndpoints reads Endpoints.
func (s *statement) readEndpoints(key Name, m message) error {
	var meta metadata
	var set subset // its lists are used again
	for m.next() {
		switch m.number {
		case 1:
			m.fail(meta.read(key, m.message("metadata")))
		case 2:
			m.fail(set.read(m.message("subsets")))
			if m.err == nil {
				m.fail(s.endpoints.addSubset(&set))
			}
		}
	}
	s.name = meta.name
	return m.err
}

// read reads an EndpointSubset.
func (s *subset) read(m message) error {
	s.Addresses.value, s.Ports.value = s.Addresses.value[:0], s.Ports.value[:0]
	for m.next() {
		switch m.number {
		case 1:
			var a address
			entry := m.message("subsets.addresses")
			for entry.next() {
				if entry.number == 1 {
					a.IP = entry.text("subsets.addresses.ip")
				}
			}
			m.fail(entry.err)
			s.Addresses.value = append(s.Addresses.value, a)
		case 3:
			var p endpointPort
			entry := m.message("subsets.ports")
			for entry.next() {
				switch entry.number {
				case 1:
					p.Name = entry.text("subsets.ports.name")
				case 2:
					p.Port = new(entry.integer("subsets.ports.port"))
				}
			}
			m.fail(entry.err)
			s.Ports.value = append(s.Ports.value, p)
		}
	}
	return m.err
}

// readSlice reads an EndpointSlice. What its endpoints are comes after them, so they are read in a second pass.
func (s *statement) readSlice(key Name, object []byte) error {
	var meta metadata
	var kind string
	m := message{data: object, path: "object"}
	endpoints := 0
	for m.next() {
		switch m.number {
		case 1:
			m.fail(meta.read(key, m.message("metadata")))
		case 2:
			endpoints++
		case 4:
			kind = m.text("addressType")
		}
	}
	s.name = meta.name
	p := &s.slice
	p.excluded = meta.otherProxy || meta.isHeadless
	if m.err != nil || p.excluded {
		return m.err
	}
	err := p.belongsTo(meta.service, meta.hasService)
	if err != nil {
		return err
	}
	if p.kind, err = parseAddressType(kind); err != nil {
		return err
	}
	p.ready = make([]Addr, 0, endpoints)
	m = message{data: object, path: "object"}
	for m.next() {
		switch m.number {
		case 2:
			m.fail(p.readEndpoint(m.message("endpoints")))
		case 3:
			m.fail(p.readPort(m.message("ports")))
		}
	}
	return m.err
}

// readEndpoint reads an Endpoint of a slice.
func (p *sliceParts) readEndpoint(m message) error {
	var e sliceEndpoint
	for m.next() {
		switch m.number {
		case 1:
			if e.addresses++; e.addresses > 1 || m.kind != protowire.BytesType {
				m.text("endpoints.addresses")
			} else if e.ipv4 = parseIPv4(m.bytes()); !e.ipv4.IsValid() {
				e.address = m.text("endpoints.addresses")
			}
		case 2:
			conditions := m.message("endpoints.conditions")
			for conditions.next() {
				switch conditions.number {
				case 1:
					e.conditions.ready = conditions.condition("endpoints.conditions.ready")
				case 2:
					e.conditions.serving = conditions.condition("endpoints.conditions.serving")
				case 3:
					e.conditions.terminating = conditions.condition("endpoints.conditions.terminating")
				}
			}
			m.fail(conditions.err)
		}
	}
	if m.err == nil {
		p.addEndpoint(e)
	}
	return m.err
}

// readPort reads an EndpointPort of a slice.
func (p *sliceParts) readPort(m message) error {
	var port servicePort
	for m.next() {
		switch m.number {
		case 1:
			port.Name = m.text("ports.name")
		case 2:
			port.Protocol = m.text("ports.protocol")
		case 3:
			port.Port = new(m.integer("ports.port"))
		}
	}
	if m.err != nil {
		return m.err
	}
	return p.addPort(&port)
}
