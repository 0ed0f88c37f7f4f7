package portable

import (
	"sync/atomic"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// Listen opens the socket of one port. It fails when the port is taken, or no descriptor is left for a listener.
func (e *Engine) Listen(id registry.ListenerID, owner *atomic.Pointer[engine.Claim], beside ...engine.Socket) (engine.Socket, error) {
	return e.ListenBy(id, owner, e.listenTCP, e.listenUDP, beside...)
}
