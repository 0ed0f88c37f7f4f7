package kernel

import (
	"net/netip"
	"sync"
	"time"

	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Carrier has the kernel carry ports. The Proxier reports to it who has each open port, and calls Apply before a listener closes. Any
// goroutine may call its methods. It waits for the kernel, and for nothing else.
type Carrier struct {
	wake chan struct{} // capacity 1: a full channel means that there is something to apply

	// What the system does; constant but for tests.
	open     func(bind netip.Addr) (table, error)
	forwards func() [2]error
	drops    func() error
	flush    func(registry.ListenerID, netip.AddrPort) error
	list     func() ([]flow, error)
	others   func() (map[flow]bool, error) // UDP flows that tables of other processes make; nil: there is no such table

	news  sync.Mutex                      // guards the field below
	dirty map[*rotation.Rotation]struct{} // rotations that have changed

	flushing sync.Mutex // held while flows are deleted; mu is taken inside it

	mu         sync.Mutex // guards the fields below
	node       Node
	off        error // why the kernel carries nothing; nil: it may
	failed     error // why the last operation failed; nil: it did not
	stopped    bool
	shared     bool  // then: another process serves the ports
	succeeds   bool  // there was a predecessor
	table      table // nil: none was needed yet, or the last one failed
	retryAt    time.Time
	backoff    time.Duration
	addresses  int // in the table
	ports      map[registry.ListenerID]*port
	beside     map[registry.ListenerID]map[*port]struct{} // ports of addresses, by the same ports of the node
	byRotation map[*rotation.Rotation]map[*port]struct{}
	stale      map[*port]struct{} // to be judged
	left       []flow             // UDP flows that are to be deleted, the last ones first
	earlier    map[uint16][]flow  // UDP flows that another process may have begun, by the number of their port; nil: not read, or forgotten
	again      bool               // they are to be searched once more
	looks      int                // since earlier was read
	failures   lograte.Limiter[struct{}]
	unflushed  lograte.Limiter[struct{}] // failed deletions of flows
	complaint  string                    // what the log was last told

	view    sync.RWMutex // guards the fields below, which a status reads; it is taken inside mu
	reasons map[registry.ListenerID]Reason
	why     Status // without Ports
}

// awaken has Run apply what was noted.
func (c *Carrier) awaken() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// judgeAllLocked has all ports judged.
func (c *Carrier) judgeAllLocked() {
	for _, p := range c.ports {
		c.stale[p] = struct{}{}
	}
}

// A port is one that a service has and whose listener is open.
type port struct {
	id        registry.ListenerID
	claim     *engine.Claim // nil: it is closed, or about to be
	reason    Reason
	installed []netip.AddrPort // by number
	flows     []netip.AddrPort // UDP: the endpoints that are installed, and others to which the kernel may still carry flows
	inherits  bool             // a predecessor may have left flows to any endpoint
	searched  bool             // UDP: its earlier flows are in flows
	shielded  bool             // it is in the map of ports as one that is left to the listener
	tally     *traffic.Tally   // where its connections are counted
	counted   uint64           // of the counter of its element
}

// A flow is the UDP flows of a port to an endpoint; in a table, all its connections there.
type flow struct {
	id       registry.ListenerID
	endpoint netip.AddrPort
}

// A table is what the kernel has of ours.
type table interface {
	apply([]change) error
	connections() (map[registry.ListenerID]uint64, error)
	connectionsOf([]change) (map[registry.ListenerID]uint64, error)
	tidy() error // once a period
	close()      // the kernel forgets all
}
