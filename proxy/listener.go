package proxy

import (
	"slices"
	"sync/atomic"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A listener is one port that at least one service claims. The first claim owns the port, the others wait in order. Its fields are guarded by the
// Proxier's mu, and those that a status reads by its view as well; owner by neither.
type listener struct {
	id     registry.ListenerID
	claims claims
	owner  atomic.Pointer[engine.Claim] // the first claim, for the engine to read on every connection

	socket  engine.Socket // nil while the port cannot be opened, and then:
	err     error         // why not
	retryAt time.Time     // when it is tried again
	backoff time.Duration // how long the last wait was

	lacksRoom bool // there are no descriptors for it, or too many ports of the local range are open
}

// A refusedPort is one that services ask for in vain.
type refusedPort struct {
	err    error // why; it depends on the port and on the configuration alone
	claims claims
}

// inOrder sorts listeners into the order in which they are opened.
func inOrder(listeners []*listener) []*listener {
	slices.SortFunc(listeners, func(a, b *listener) int { return a.id.Compare(b.id) })
	return listeners
}
