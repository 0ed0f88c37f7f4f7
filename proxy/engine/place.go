package engine

import (
	"sync/atomic"

	"kubeproxy/proxy/balance/rotation"
)

// A Place is where an adopted connection or session belongs in this process.
type Place struct {
	Claim    *Claim                 // of its service; one whose lifetime is over if the service has left the port
	Owner    *atomic.Pointer[Claim] // of its port
	Socket   Socket                 // of its port; nil if that is not open
	Endpoint *rotation.Endpoint     // nil while one is being looked for
	Previous *rotation.Endpoint     // UDP: that carried it before; may be nil
}
