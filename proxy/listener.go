package proxy

import (
	"slices"
	"sync/atomic"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A listener is one port that at least one service claims. The first claim owns the port, the
// others wait in order. Its fields are guarded by the Proxier's mu, and those that a status reads by its
// view as well; owner by neither.
type listener struct {
	id     registry.NodePort
	claims claims
	owner  atomic.Pointer[engine.Claim] // the first claim, for the engine to read on every connection

	socket  engine.Socket // nil while the port cannot be opened, and then:
	err     error         // why not
	retryAt time.Time     // when it is tried again
	backoff time.Duration // how long the last wait was

	lacksRoom bool // there are no descriptors for it, or too many ports of the local range are open
	local     bool // it is open, and counted as one of the local range
}

// A refusedPort is one that services ask for in vain.
type refusedPort struct {
	err    error // why; it depends on the port and on the configuration alone
	claims claims
}

// A heldPort is a port that another program had when it was last tried.
type heldPort struct {
	err       error     // of that attempt
	freeSince time.Time // the first of the probes, without a break until now, that found it free; zero: it was in use
	left      time.Time // since when no service claims it; zero: one does
}

// inOrder sorts listeners into the order in which they are opened.
func inOrder(listeners []*listener) []*listener {
	slices.SortFunc(listeners, func(a, b *listener) int { return a.id.Compare(b.id) })
	return listeners
}
