package balance

import (
	"iter"

	"kubeproxy/proxy/handover"
)

// Export yields what the rotations have learned from clients, for a successor. No client may begin to choose meanwhile.
func (lb *LoadBalancerRR) Export() iter.Seq[handover.Record] {
	rotations := lb.list()
	return func(yield func(handover.Record) bool) {
		for _, r := range rotations {
			for record := range r.Export() {
				if !yield(record) {
					return
				}
			}
		}
	}
}

// Adopt has a rotation go on where that of a predecessor was, as far as it has the same endpoints.
func (lb *LoadBalancerRR) Adopt(record *handover.Rotation) {
	if r := lb.find(record.Service); r != nil {
		r.Adopt(record)
	}
}

// AdoptAffinities remembers clients of a predecessor whose endpoints are still there.
func (lb *LoadBalancerRR) AdoptAffinities(of *handover.Affinities) {
	if r := lb.find(of.Service); r != nil {
		r.AdoptAffinities(of)
	}
}
