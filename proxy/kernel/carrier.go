package kernel

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/kernel/forwarding"
	"kubeproxy/registry"
)

// period is the time between two looks at counters, at the node, and at ports whose endpoints come back by themselves.
const period = 10 * time.Second

// Bounds of flows that are to be deleted.
const (
	fewFlows = 16      // that a batch deletes before it returns
	maxLeft  = 1 << 14 // that wait after a deletion has failed; older ones go on while they last
)

var errNotYet = errors.New("it has not begun")

// New returns a carrier that carries nothing before Run or Prepare. It finds out node.Forwards itself.
func New(bind netip.Addr, node Node) *Carrier {
	node.bind = bind
	return &Carrier{
		node: node, wake: make(chan struct{}, 1),
		open: openTable, forwards: forwarding.Missing, drops: forwarding.Dropping, flush: deleteFlows, list: listFlows, others: flowsOfOthers,
		dirty:      make(map[*rotation.Rotation]struct{}),
		off:        errNotYet,
		ports:      make(map[registry.ListenerID]*port),
		beside:     make(map[registry.ListenerID]map[*port]struct{}),
		byRotation: make(map[*rotation.Rotation]map[*port]struct{}),
		stale:      make(map[*port]struct{}),
		reasons:    make(map[registry.ListenerID]Reason),
		why:        Status{Off: errNotYet},
	}
}

// Changed notes that the endpoints of a rotation have changed, or their health. It waits for nothing.
func (c *Carrier) Changed(r *rotation.Rotation) {
	c.news.Lock()
	c.dirty[r] = struct{}{}
	c.news.Unlock()
	c.awaken()
}

// Claim notes who has an open port; nil: it is not open, or about to be closed. Apply puts that in force.
func (c *Carrier) Claim(id registry.ListenerID, claim *engine.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[id]
	switch {
	case p == nil && claim == nil:
		return
	case p == nil:
		p = &port{id: id, reason: NotOpen, inherits: c.succeeds}
		c.ports[id] = p
		c.joinLocked(p)
	case p.claim == claim:
		return
	}
	if p.claim != nil {
		of := c.byRotation[p.claim.Rotation]
		if delete(of, p); len(of) == 0 {
			delete(c.byRotation, p.claim.Rotation)
		}
	}
	if p.claim = claim; claim != nil {
		of := c.byRotation[claim.Rotation]
		if of == nil {
			of = make(map[*port]struct{})
			c.byRotation[claim.Rotation] = of
		}
		of[p] = struct{}{}
	}
	c.stale[p] = struct{}{}
	for q := range c.beside[id] { // it may need a shield, or none any more
		c.stale[q] = struct{}{}
	}
}

// joinLocked notes that there is a port. If it is one of an address, the datagrams of its clients are the listener's there, and no longer those of the
// same port of the node, when Apply has put that in force.
func (c *Carrier) joinLocked(p *port) {
	if !p.id.Addr.IsValid() {
		return
	}
	id := p.id.AtNode()
	if c.beside[id] == nil {
		c.beside[id] = make(map[*port]struct{})
	}
	c.beside[id][p] = struct{}{}
	if node := c.ports[id]; node != nil {
		for _, e := range node.flows {
			if e.Addr().Is4() == p.id.Addr.Is4() {
				p.flows = append(p.flows, e)
			}
		}
	}
}

// leaveLocked notes that there is a port no more.
func (c *Carrier) leaveLocked(p *port) {
	id := p.id.AtNode()
	if delete(c.beside[id], p); len(c.beside[id]) == 0 {
		delete(c.beside, id)
	}
}

// Apply puts in force what was noted. When it returns, the kernel carries no port that it must not, and the next datagram of a UDP client
// finds an endpoint that its port has now. Where a batch takes away more than fewFlows UDP endpoints, the others are left to Run.
func (c *Carrier) Apply() {
	c.mu.Lock()
	c.applyLocked()
	c.mu.Unlock()
	if c.flushSome() {
		c.awaken()
	}
}

// Prepare makes the table before there is anything to carry, so that connections of a predecessor go on after its table has gone. It must be
// called before Claim.
func (c *Carrier) Prepare() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.succeeds, c.again = true, true
	c.examineLocked()
	if c.off == nil && c.table == nil {
		c.openLocked()
	}
	c.noteLocked()
}

// Run follows the health of endpoints, counts connections, and looks at the node, until ctx ends. What is in force then stays until Stop.
func (c *Carrier) Run(ctx context.Context) {
	ticker := time.NewTicker(period)
	defer ticker.Stop()
	c.look()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.Apply() // one batch of flows a turn, or ports would not follow their endpoints meanwhile
		case <-ticker.C:
			c.look()
			c.awaken() // for flows whose deletion has failed
		}
	}
}

// Stop takes all ports out of the kernel, for good. Connections go on until Close. shared: another process serves the ports, a successor or predecessor.
func (c *Carrier) Stop(shared bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped, c.shared = true, shared
	c.judgeAllLocked()
	c.applyLocked()
}

// Close deletes the table, and the UDP flows that no table of another process looks after: clients that go on would keep an endpoint that may leave.
// If another process serves the ports, and has a table, it looks after all of them.
func (c *Carrier) Close() {
	c.flushing.Lock()
	defer c.flushing.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped = true; c.table != nil {
		glog.Info("kernel: this process carries nothing any more; TCP connections of the kernel go on only to a successor with -kernel=auto")
		c.table.close()
		c.table = nil
	}
	if err := c.endFlowsLocked(); err != nil {
		glog.Warningf("kernel: UDP flows are left, and go on while they last: %v", err)
	}
}

// Why returns why the kernel does not carry a port. It does not wait for the kernel.
func (c *Carrier) Why(id registry.ListenerID) Reason {
	c.view.RLock()
	defer c.view.RUnlock()
	if reason, ok := c.reasons[id]; ok {
		return reason
	}
	return NotOpen
}

// Status returns what the kernel carries, and why not more. It does not wait for the kernel.
func (c *Carrier) Status() *Status {
	c.view.RLock()
	defer c.view.RUnlock()
	s := c.why
	s.Ports = make([]int, numReasons)
	for _, reason := range c.reasons {
		s.Ports[reason]++
	}
	return &s
}

// Count has the counters of services follow those of the kernel.
func (c *Carrier) Count() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.countLocked()
}

// look does what is done once a period.
func (c *Carrier) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	began := time.Now()
	c.countLocked()
	if c.table != nil {
		if err := c.table.tidy(); err != nil {
			c.failLocked(err)
		}
	}
	c.examineLocked()
	c.ageFlowsLocked()
	c.judgeAllLocked() // also what is carried: an address of an endpoint may have become one of this node
	c.applyLocked()
	if !began.Before(c.retryAt) { // so nothing fails, or no port needs what has failed
		c.failed = nil
	}
	c.noteLocked()
	c.complainLocked()
}

// complainLocked has the log follow what there is to change.
func (c *Carrier) complainLocked() {
	now := c.Status().Complaint()
	switch {
	case now == c.complaint || c.failed != nil: // an operation that failed has its own line
		return
	case now == "":
		glog.Info("kernel: nothing keeps ports from being carried that a change would end")
	default:
		glog.Warningf("kernel: %s", now)
	}
	c.complaint = now
}

// noteLocked notes for a status why the kernel does not carry more.
func (c *Carrier) noteLocked() {
	c.view.Lock()
	defer c.view.Unlock()
	c.why = Status{Off: cmp.Or(c.off, c.failed), Forwards: c.node.Forwards}
}

// flushSome deletes UDP flows to endpoints that have left, of fewFlows ports and endpoints at most: the kernel walks through its whole
// connection table for each. The newest come first, or a batch would wait for those before it. It reports whether there are more to be deleted now.
func (c *Carrier) flushSome() (more bool) {
	c.flushing.Lock() // so Apply waits for what Run has taken
	defer c.flushing.Unlock()
	c.mu.Lock()
	older := max(0, len(c.left)-fewFlows)
	newest := slices.Clone(c.left[older:])
	c.left = c.left[:older]
	c.mu.Unlock()
	return c.flushEach(newest) && older > 0
}

// flushEach deletes UDP flows, the last ones first. false: that failed, and the rest waits for the next batch or look.
func (c *Carrier) flushEach(flows []flow) bool {
	for i, f := range slices.Backward(flows) {
		if c.goesOn(f) {
			continue
		}
		if err := c.flush(f.id, f.endpoint); err != nil {
			if note, ok := c.unflushed.Allow(struct{}{}); ok {
				glog.Warningf("kernel: the UDP flows of %s to %s are not deleted: %v; trying again in %v%s", f.id, f.endpoint, err, period, note)
			}
			c.mu.Lock()
			c.left = slices.Concat([]flow{f}, c.left, flows[:i]) // it is tried last: it may be the only one that fails
			c.left = c.left[max(0, len(c.left)-maxLeft):]
			c.mu.Unlock()
			return false // the others would most likely fail like it
		}
	}
	return true
}

// goesOn reports whether flows that were to be deleted are to go on by now: their endpoint has come back while they waited.
func (c *Carrier) goesOn(f flow) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.ports[f.id]
	return p != nil && slices.Contains(p.flows, f.endpoint)
}

// examineLocked finds out what the node can do.
func (c *Carrier) examineLocked() {
	forwards, off := c.forwards(), c.drops()
	if off == nil && forwards[0] != nil && forwards[1] != nil {
		off = forwards[0]
	}
	changed := (off == nil) != (c.off == nil)
	for f, no := range forwards {
		changed = changed || (no == nil) != (c.node.Forwards[f] == nil)
	}
	if c.node.Forwards, c.off = forwards, off; changed {
		c.judgeAllLocked()
	}
}
