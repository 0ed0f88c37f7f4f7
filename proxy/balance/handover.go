package balance

import (
	"iter"

	"kubeproxy/proxy/handover"
)

// Export yields what the rotations have learned from clients, for a successor. No client may begin to choose meanwhile.
func (lb *LoadBalancerRR) Export() iter.Seq[handover.Message] {
	rotations := lb.list()
	return func(yield func(handover.Message) bool) {
		for _, r := range rotations {
			for message := range r.Export() {
				if !yield(message) {
					return
				}
			}
		}
	}
}

// Adopt has a rotation go on where that of a predecessor was, as far as it has the same endpoints.
func (lb *LoadBalancerRR) Adopt(message *handover.Rotation) {
	if r := lb.find(message.Service); r != nil {
		r.Adopt(message)
	}
}

// AdoptAffinities remembers clients of a predecessor whose endpoints are still there.
func (lb *LoadBalancerRR) AdoptAffinities(of *handover.Affinities) {
	if r := lb.find(of.Service); r != nil {
		r.AdoptAffinities(of)
	}
}
