package registry

import (
	"net/netip"
	"slices"
)

// A Service is what is offered on every node. One without Ports is valid and has nothing to serve
// (headless, ExternalName).
//
// No two Ports have the same ID. Several may have the same Name, and with it
// the same endpoints: that is how a record without port names offers DNS on TCP and on UDP.
type Service struct {
	Name
	Rank    int   // of the source that it is from: 0 for the first; set by package config
	Created int64 // stands for one life of its key: in etcd the create revision; set by the source
	Ports   []Port

	// Since has a revision for each of Ports: from it on, the source knows the record to claim that port without a break; see
	// [Service.Date]. nil means from Created on.
	Since []int64

	Asked *Terms // nil: nothing, as of most services; it may be shared, and is never changed; read it by Terms, set it by SetTerms
}

// A Port is one port that a service offers on every node, at one address. Its Number is the port that clients
// connect to: in v0.4 that is a port of the node itself.
type Port struct {
	Name     string     // joins it to the endpoints of the same port name
	Addr     netip.Addr // that clients connect to; the zero Addr: the node
	Protocol Protocol
	Number   uint16 // never 0

	// What the address means for who comes to it: see [Service.TermsOf].
	Local bool // clients are given endpoints on the node only
	Open  bool // any client may connect
}

// ID is the listener that the service wants for the port.
func (p *Port) ID() ListenerID { return ListenerID{p.Addr, p.Protocol, p.Number} }

// Terms returns what the service asks for.
func (s *Service) Terms() *Terms {
	if s.Asked == nil {
		return NoTerms
	}
	return s.Asked
}

// SetTerms sets what the service asks for.
func (s *Service) SetTerms(t Terms) {
	if s.Asked = nil; !t.Equal(NoTerms) {
		own := t // t itself would be allocated for each service
		s.Asked = &own
	}
}

// TermsOf returns what the service asks for the clients of one of its ports.
func (s *Service) TermsOf(p *Port) *Terms {
	t := s.Terms()
	if (t.Local || !p.Local) && (!p.Open || len(t.SourceRanges) == 0) {
		return t
	}
	own := *t
	own.Local = t.Local || p.Local
	if p.Open {
		own.SourceRanges = nil
	}
	return &own
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
	var known map[ListenerID]int64
	if before != nil && len(s.Ports) > 0 {
		known = make(map[ListenerID]int64, len(before.Ports))
		for i, p := range before.Ports {
			known[p.ID()] = before.ClaimedSince(i)
		}
	}
	for i, p := range s.Ports {
		s.Since[i] = revision
		if since, ok := known[p.ID()]; ok {
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
	return s.Name == t.Name && s.Created == t.Created && slices.Equal(s.Ports, t.Ports) && s.Terms().Equal(t.Terms())
}
