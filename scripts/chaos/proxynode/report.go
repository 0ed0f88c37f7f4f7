package proxynode

import (
	"net/netip"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// A Config is the first value that a node reads from its standard input.
type Config struct {
	Address            netip.Addr
	Endpoints          []string
	Username, Password string
	SyncPeriod         time.Duration
	PageSize           int64
	ClientTimeout      time.Duration // clients wait for so long; dials end before that
}

// A Query asks for an Answer.
type Query struct {
	Free  bool // give memory back to the system first
	Brief bool // leave out the state and the ports
}

// A Report is what a node says of itself. Exactly one of its pointers is set.
type Report struct {
	At      time.Time
	Update  *registry.Update // passed to the Mux at this moment
	Settled *int             // the handlers received the settled service, with this port
	Answer  *Answer
}

// An Answer is what a Query asked for.
type Answer struct {
	Number      int
	state       State // sent as text: see wireReport
	Ports       []PortState
	Source      config.Status
	Resident    int64 // bytes
	Live        int64 // bytes of the heap in use; after a collection when memory was given back first
	Descriptors int
	Goroutines  int
}

// State returns what the handlers hold, unless the Query was brief.
func (a *Answer) State() State { return a.state }

// A State is the sum of all batches.
type State struct {
	Services  map[registry.Name]*registry.Service
	Endpoints map[registry.Name]*registry.Endpoints
}

// A PortState is a [proxy.PortStatus] fit for gob.
type PortState struct {
	Listener registry.ListenerID
	Claims   []registry.PortKey // the owner first
	Err      string
}
