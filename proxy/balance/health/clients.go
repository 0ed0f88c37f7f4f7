package health

import (
	"iter"

	"kubeproxy/registry"
)

// Clients are a set of the clients of a service. What they get depends on their protocol, and on whether their port gives them endpoints on the
// node only, as [registry.Service.TermsOf] says: then they are local.
type Clients uint32

// ClientsOf returns the clients of a port.
func ClientsOf(protocol registry.Protocol, local bool) Clients {
	if local {
		return 2 << (2 * protocol)
	}
	return 1 << (2 * protocol)
}

// Each yields the protocols of the clients, each with whether they are local.
func (c Clients) Each() iter.Seq2[registry.Protocol, bool] {
	return func(yield func(registry.Protocol, bool) bool) {
		for protocol := range registry.UDP + 1 {
			for _, local := range [...]bool{false, true} {
				if c&ClientsOf(protocol, local) != 0 && !yield(protocol, local) {
					return
				}
			}
		}
	}
}

// Over returns those over a protocol.
func (c Clients) Over(protocol registry.Protocol) Clients { return c & (3 << (2 * protocol)) }
