package decode

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kubeproxy/registry"
	"kubeproxy/registry/names"
	"kubeproxy/registry/spelling"
)

// A Record is one decoded record: exactly one of Service, Endpoints and Slice is set.
type Record struct {
	Key       registry.Key
	Service   *registry.Service
	Endpoints *registry.Endpoints
	Slice     *registry.EndpointSlice
	Names     names.Names // of Endpoints or Slice
	Dropped   int         // entries of Endpoints or Slice that could not be used; a warning names some of them

	NoNodePort int // ports of Service that are not among its Ports for want of a nodePort: see [Decoder]
}

// A Decoder says how records are understood. The zero value understands them as v0.4 did. It is a value: any goroutine may use a copy.
type Decoder struct {
	// NodePorts has a service offer the nodePort of each of its ports in place of the port itself. A port without one is not offered.
	NodePorts bool

	// Addresses says where the ports of a service are whose record does not say so by an annotation. With others than AtNode, NodePorts does not count.
	Addresses Addresses

	// Node is where the records are read: where endpoints are is told from there.
	Node registry.Node

	// Patroni is the prefix below which clusters of Patroni have their keys, such as /service/; "": records may not name clusters.
	Patroni string

	// HolderKeys are the prefixes of keys that a record may have elect endpoints: others it must not have followed, as whoever writes records might
	// read them that way.
	HolderKeys []string
}

// A statement is what a value says, in whichever encoding: read, and not checked yet. The rules of records are applied to it.
type statement struct {
	name registry.Name // by which it calls itself; what it leaves out is empty

	service   serviceSpec
	endpoints collector
	slice     sliceParts

	node registry.Node // that reads it

	annotations spelling.Annotations
}

// record makes a record of what a value says.
func (d Decoder) record(k registry.Key, said *statement) (r Record, warnings []registry.Warning, err error) {
	r.Key = k
	if said.service.nothing || said.slice.excluded {
		said.annotations = spelling.Annotations{} // of what this proxy does not serve, they mean nothing to it
	}
	if err := said.annotations.Err; err != nil {
		return Record{}, nil, err
	}
	switch k.Kind {
	case registry.KindService:
		said.service.wishes.Annotations = said.annotations.Values
		r.Service, r.NoNodePort, warnings, err = said.service.service(k.Name, d.NodePorts && d.Addresses == AtNode)
		if err == nil {
			err = cmp.Or(d.follows(r.Service.Terms().HolderKey), d.followsPatroni(r.Service))
		}
	case registry.KindEndpoints:
		r.Endpoints = &registry.Endpoints{Name: k.Name, ByPort: said.endpoints.byPort()}
		weights, bad := said.weights(r.Endpoints.ByPort)
		r.Endpoints.Weights, err = weights.Canonical(), bad
		err = cmp.Or(err, said.locate(r.Endpoints.ByPort), said.mark(r.Endpoints.ByPort), said.call(&r))
		r.Dropped = said.endpoints.count
		warnings = said.endpoints.leftOut.warnings("endpoint", "endpoints")
	case registry.KindEndpointSlice:
		if r.Slice, err = said.slice.slice(k.Name); err == nil {
			r.Slice.Weights, err = said.weights(r.Slice.Ready, r.Slice.Terminating)
			err = cmp.Or(err, said.locate(r.Slice.Ready), said.locate(r.Slice.Terminating), said.mark(r.Slice.Ready), said.mark(r.Slice.Terminating), said.call(&r))
		}
		r.Dropped = said.slice.count
		warnings = said.slice.warnings()
	}
	return r, append(warnings, said.annotations.Warnings...), err
}

// weights reads the annotation about the weights of these addresses.
func (s *statement) weights(byPort ...[]registry.PortAddrs) (registry.Weights, error) {
	annotation, ok := s.annotations.Values[registry.WeightAnnotation]
	if !ok {
		return "", nil
	}
	return registry.ParseWeights(annotation, byPort...)
}

// locate reads the annotation about the zones of these addresses.
func (s *statement) locate(byPort []registry.PortAddrs) error {
	annotation, ok := s.annotations.Values[registry.ZoneAnnotation]
	if !ok {
		return nil
	}
	zones, err := registry.ParseZones(annotation)
	if err == nil {
		s.node.Locate(byPort, &zones)
	}
	return err
}

// mark reads the annotation about which of these addresses stand by.
func (s *statement) mark(byPort []registry.PortAddrs) error {
	annotation, ok := s.annotations.Values[registry.BackupAnnotation]
	if !ok {
		return nil
	}
	backups, err := registry.ParseBackups(annotation)
	if err == nil {
		backups.Mark(byPort)
	}
	return err
}

// call reads the annotation about the names of the addresses.
func (s *statement) call(r *Record) (err error) {
	if annotation, ok := s.annotations.Values[names.Annotation]; ok {
		r.Names, err = names.Parse(annotation)
	}
	return err
}

// follows reports an error if a record must not have a key elect its endpoints.
func (d Decoder) follows(key string) error {
	if key == "" || slices.ContainsFunc(d.HolderKeys, func(prefix string) bool { return strings.HasPrefix(key, prefix) }) {
		return nil
	}
	return fmt.Errorf("annotation %sholder-key: %s is not below a prefix of -holder_keys, or this source is no etcd 3", registry.AnnotationPrefix, registry.Quote(key))
}

// followsPatroni has a service whose record names a cluster of Patroni follow its keys.
func (d Decoder) followsPatroni(s *registry.Service) error {
	terms := *s.Terms()
	annotation := registry.AnnotationPrefix + "patroni"
	switch {
	case terms.Patroni.Scope == "":
		return nil
	case d.Patroni == "":
		return fmt.Errorf("annotation %s: -patroni says where clusters have their keys, and it is empty, or this source is no etcd 3", annotation)
	case slices.ContainsFunc(s.Ports, func(p registry.Port) bool { return p.Protocol != registry.TCP || p.Name != s.Ports[0].Name }):
		return fmt.Errorf("annotation %s: the service has more than one port, or one that is not of TCP", annotation)
	}
	terms.HolderKey = d.Patroni + terms.Patroni.Scope + "/"
	if terms.Removal.Rule == registry.RemovalUnsaid {
		terms.Removal.Rule = registry.RemovalClose // who is no longer the primary must not take writes
	}
	s.SetTerms(terms)
	return nil
}
