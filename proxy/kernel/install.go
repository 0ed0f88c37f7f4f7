package kernel

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// Times and bounds.
const (
	firstRetry   = time.Second // after an operation failed; then twice as long each time
	lastRetry    = time.Minute
	maxAddresses = 1 << 18 // endpoints of all ports together; they take some 30 MB of the kernel over TCP, and twice that over UDP
)

// applyLocked judges what is stale, and has the table follow. When that fails, there is another try with a new table at once, and more of
// them later.
func (c *Carrier) applyLocked() {
	c.news.Lock()
	for r := range c.dirty {
		for p := range c.byRotation[r] {
			c.stale[p] = struct{}{}
		}
	}
	clear(c.dirty)
	c.news.Unlock()
	for range 2 {
		changes := c.judgeLocked()
		if len(changes) == 0 || c.installLocked(changes) {
			return
		}
	}
	c.judgeLocked() // nothing is installed, so there is nothing to take out
}

// A verdict is a change of a port, and what becomes of the port with it.
type verdict struct {
	change
	port   *port
	reason Reason
	stay   []netip.AddrPort // endpoints to which UDP flows go on, beside those in after
}

// judgeLocked returns what has to change in the table. Stale ports that do not change there are so no more.
func (c *Carrier) judgeLocked() (due []verdict) {
	addresses := c.addresses
	for p := range c.stale {
		c.findFlowsLocked(p)
		wanted, reason, stay := c.judgePortLocked(p)
		if addresses += len(wanted) - len(p.installed); addresses > maxAddresses && len(wanted) > len(p.installed) {
			addresses -= len(wanted)
			wanted, reason = nil, TooMany
		}
		v := verdict{change{id: p.id, before: p.installed, after: fill(p.installed, wanted), shielded: p.shielded}, p, reason, stay}
		v.shields = len(v.after) == 0 && c.needsShieldLocked(p, reason)
		if slices.Equal(v.before, v.after) && v.shields == v.shielded && !p.changesHands() {
			c.settleLocked(&v)
			continue
		}
		due = append(due, v)
	}
	// They may take more than one transaction, and in none of them may a port of the node be given clients of an address.
	slices.SortStableFunc(due, func(a, b verdict) int { return a.rank() - b.rank() })
	return due
}

// rank orders verdicts: what keeps the clients of an address from the port of the node is there before that port, and goes after it.
func (v *verdict) rank() int {
	switch {
	case !v.id.Addr.IsValid():
		return 1
	case len(v.after) > 0 || v.shields:
		return 0
	}
	return 2
}

// needsShieldLocked reports whether the kernel has to know of a port that it does not carry: it is open at an address, and a service has the same port of
// the node.
func (c *Carrier) needsShieldLocked(p *port, reason Reason) bool {
	addr := p.id.Addr
	if !addr.IsValid() || p.claim == nil || reason == Off || addr.IsLoopback() || addr.Is6() && addr.IsLinkLocalUnicast() { // these the rules leave alone
		return false
	}
	node := c.ports[p.id.AtNode()]
	return node != nil && node.claim != nil
}

// changesHands reports whether connections that the kernel carries from now on are another tally's.
func (p *port) changesHands() bool {
	return len(p.installed) > 0 && (p.claim == nil || p.claim.Tally != p.tally)
}

// judgePortLocked returns what the kernel is to have of a port, or why it is to have nothing; and the endpoints to which flows go on in any case.
func (c *Carrier) judgePortLocked(p *port) (wanted []netip.AddrPort, reason Reason, stay []netip.AddrPort) {
	has := func(e netip.AddrPort) bool { return p.inherits || slices.Contains(p.flows, e) }
	switch {
	case p.claim == nil:
		return nil, NotOpen, nil
	case c.off != nil:
		return nil, Off, nil
	case c.stopped || time.Now().Before(c.retryAt):
		return nil, Off, p.flows
	}
	wanted, reason = c.node.Judge(p.id, p.claim.Terms, p.claim.Rotation.Standings(p.id.Protocol, p.id.Addr))
	if p.id.Protocol == registry.UDP {
		stay = c.node.Stay(p.claim.Terms, p.claim.Rotation.Keeping(registry.UDP, p.id.Addr), has)
	}
	return wanted, reason, stay
}

// installLocked puts changes in force. false: it failed, nothing is installed any more, and all ports are stale.
func (c *Carrier) installLocked(due []verdict) bool {
	if c.table == nil && !c.openLocked() {
		return false
	}
	changes := make([]change, len(due))
	var ending []change
	for i := range due {
		changes[i] = due[i].change
		if due[i].recounts() || due[i].port.changesHands() {
			ending = append(ending, due[i].change)
		}
	}
	counts, err := c.table.connectionsOf(ending)
	if err == nil {
		c.creditLocked(counts)
		err = c.table.apply(changes)
	}
	if err != nil {
		c.failLocked(err)
		return false
	}
	c.failed = nil
	c.noteLocked()
	for i := range due {
		c.settleLocked(&due[i])
	}
	return true
}

// settleLocked notes that a verdict is in force.
func (c *Carrier) settleLocked(v *verdict) {
	p := v.port
	delete(c.stale, p)
	if p.reason != v.reason {
		glog.V(1).Infof("kernel: %s: %s", p.id, v.reason)
	}
	if p.id.Protocol == registry.UDP {
		flows := slices.Clone(v.after)
		for _, e := range v.stay {
			if !slices.Contains(v.after, e) {
				flows = append(flows, e)
			}
		}
		waiting := len(c.left) // some of these may have failed, and wait for the next look
		for _, e := range p.flows {
			if !slices.Contains(flows, e) {
				c.left = append(c.left, flow{p.id, e})
			}
		}
		p.flows, p.inherits = flows, false
		if len(c.left) > waiting {
			c.awaken()
		}
	}
	if v.recounts() {
		p.counted = 0
	}
	c.addresses += len(v.after) - len(p.installed)
	p.installed, p.shielded, p.reason = v.after, v.shields, v.reason
	c.view.Lock()
	defer c.view.Unlock()
	if p.claim == nil {
		delete(c.ports, p.id)
		c.leaveLocked(p)
		delete(c.reasons, p.id)
	} else {
		p.tally = p.claim.Tally
		c.reasons[p.id] = p.reason
	}
}

// openLocked makes a table; false: it cannot be made, and nothing is tried for a while.
func (c *Carrier) openLocked() bool {
	t, err := c.open(c.node.bind)
	if err != nil {
		c.failLocked(err)
		return false
	}
	c.table = t
	return true
}

// failLocked gives up the table after an operation that failed. The listeners of its ports have all clients then. Another table is there
// before it goes, if possible, for its connections to go on; the first time it is used at once.
func (c *Carrier) failLocked(err error) {
	if note, ok := c.failures.Allow(struct{}{}); ok {
		glog.Errorf("kernel: no port is carried: %v; trying again%s", err, note)
	}
	c.failed = fmt.Errorf("%w; it is tried again", err)
	again := c.backoff == 0 && c.table != nil
	c.backoff = min(max(2*c.backoff, firstRetry), lastRetry)
	if old := c.table; old != nil {
		var failed error
		if c.table, failed = c.open(c.node.bind); failed != nil {
			c.table, again = nil, false
		}
		old.close()
	}
	if !again {
		c.retryAt = time.Now().Add(c.backoff)
	}
	c.addresses = 0
	for _, p := range c.ports {
		p.installed, p.shielded, p.counted = nil, false, 0
	}
	c.judgeAllLocked()
	c.noteLocked()
}

// countLocked has the tallies follow the counters. A table that cannot be read is given up: it may not be what it should.
func (c *Carrier) countLocked() {
	if c.table == nil {
		return
	}
	counts, err := c.table.connections()
	if err != nil {
		c.failLocked(err)
		return
	}
	c.creditLocked(counts)
	c.backoff = 0
}

// creditLocked adds to the tallies what counters have counted since they were last read.
func (c *Carrier) creditLocked(counts map[registry.ListenerID]uint64) {
	for id, n := range counts {
		if p := c.ports[id]; p != nil && p.tally != nil && len(p.installed) > 0 && n > p.counted {
			p.tally.Carry(n - p.counted)
			p.counted = n
		}
	}
}
