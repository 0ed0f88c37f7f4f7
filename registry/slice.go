package registry

import "slices"

// An EndpointSlice is a part of the endpoints of one service. All slices that name the service add up to its endpoints: see
// [JoinSlices].
//
// Each list of addresses is sorted, without repeats and not empty. Ready and Terminating name no port twice, are sorted by the names of
// the ports, and name the same ports, unless one of them is empty.
type EndpointSlice struct {
	Name                    // its own
	Service     string      // the name of its service, which is in the same namespace; "": no proxy of this kind is to read it
	Ready       []PortAddrs // for every client
	Terminating []PortAddrs // about to stop, and still answering: where no other endpoint is ready
	Weights     Weights     // of its addresses, all that it says: an earlier slice may say otherwise
}

// ServiceName names the service that the slice belongs to.
func (s *EndpointSlice) ServiceName() Name { return Name{s.Namespace, s.Service} }

// Equal reports whether two slices say the same.
func (s *EndpointSlice) Equal(t *EndpointSlice) bool {
	if s == nil || t == nil {
		return s == t
	}
	return s.Name == t.Name && s.Service == t.Service && s.Weights == t.Weights && slices.Equal(s.Ready, t.Ready) && slices.Equal(s.Terminating, t.Terminating)
}
