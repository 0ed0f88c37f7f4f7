package kernel

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// UDP flows outlive the process whose table sent them to an endpoint. If the endpoint is removed while no process runs, or during a take-over, nobody
// would delete them, and a client that goes on would keep an endpoint that is gone. So what the connection table has is read when this process has
// a new UDP port to judge, and each port is given its own. Ports that open together share one reading.

// maxEarlier bounds how many addresses, ports and endpoints of earlier flows are known. They take some 10 MB until they are forgotten.
const maxEarlier = 1 << 16

// findFlowsLocked has a UDP port know of its earlier flows, the first time that it is judged while the kernel may carry it.
func (c *Carrier) findFlowsLocked(p *port) {
	if p.searched || c.off != nil || p.id.Protocol != registry.UDP {
		return
	}
	p.searched = true
	if c.earlier == nil {
		c.listFlowsLocked()
	}
	known := len(p.flows)
	for _, e := range c.earlier[p.id.Number] {
		if e.id == p.id || p.id == e.id.AtNode() && c.isAtNodeLocked(e.id) {
			p.flows = append(p.flows, e.endpoint)
		}
	}
	if len(p.flows) > known { // several addresses may have flows to one endpoint
		slices.SortFunc(p.flows, netip.AddrPort.Compare)
		p.flows = slices.Compact(p.flows)
	}
}

// isAtNodeLocked reports whether an earlier flow to an address and port may be one of the port of the node. Rules of other programs translate, too, but
// rarely what comes to an address and a port where a listener of ours is.
func (c *Carrier) isAtNodeLocked(id registry.ListenerID) bool {
	return c.ports[id] == nil && (c.node.bind.IsUnspecified() || c.node.bind == id.Addr) && c.node.IsLocal(id.Addr)
}

// listFlowsLocked reads the UDP flows of the connection table.
func (c *Carrier) listFlowsLocked() {
	all, err := c.list()
	if err != nil {
		glog.Warningf("kernel: the UDP flows that an earlier process left are not known: %v; those to endpoints that have left go on while they last", err)
	}
	c.earlier, c.looks = make(map[uint16][]flow), 0
	for _, e := range all {
		c.earlier[e.id.Number] = append(c.earlier[e.id.Number], e)
	}
}

// EndFlows deletes the UDP flows of the ports of a service to an endpoint that nobody is to have any more. It returns when they are, or are to be tried again.
func (c *Carrier) EndFlows(service registry.Name, endpoint netip.AddrPort) {
	endpoint = netip.AddrPortFrom(endpoint.Addr().Unmap(), endpoint.Port())
	c.flushing.Lock() // so it waits for what Run has taken
	defer c.flushing.Unlock()
	c.mu.Lock()
	for _, p := range c.ports {
		if i := slices.Index(p.flows, endpoint); i >= 0 && p.claim != nil && p.claim.Key.Name == service {
			p.flows = slices.Delete(slices.Clone(p.flows), i, i+1)
			c.left = append(c.left, flow{p.id, endpoint})
		}
	}
	var ending, others []flow // some that end may have waited already
	for _, f := range c.left {
		if f.endpoint == endpoint {
			ending = append(ending, f)
		} else {
			others = append(others, f)
		}
	}
	c.left = others
	c.mu.Unlock()
	c.flushEach(ending)
}

// endFlowsLocked deletes the UDP flows of all ports, for good, but for those that another process looks after: one that serves the ports and has a table
// looks after all, and one that found nobody to take over from, after what its table makes.
func (c *Carrier) endFlowsLocked() error {
	ours := make(map[flow]bool)
	for _, f := range c.left {
		ours[f] = true
	}
	for _, p := range c.ports {
		for _, e := range p.flows {
			ours[flow{p.id, e}] = true
		}
		p.flows = nil
	}
	if c.left = nil; len(ours) == 0 {
		return nil
	}
	others, err := c.others()
	if err != nil || c.shared && others != nil {
		return err
	}
	all, err := c.list() // so that no endpoint is looked for that has none
	for _, e := range all {
		of := flow{e.id.AtNode(), e.endpoint}
		if (ours[e] || ours[of] && c.isAtNodeLocked(e.id)) && !others[e] && !others[of] {
			err = cmp.Or(err, c.flush(e.id, e.endpoint))
		}
	}
	return err
}

// ageFlowsLocked forgets the earlier flows at the second look after they were read: each port has its own by then, and the next port has them read anew.
// A predecessor was still there at the first reading, and its table may have sent clients to endpoints that had left. So a successor searches twice.
func (c *Carrier) ageFlowsLocked() {
	if c.looks++; c.earlier == nil || c.looks < 2 {
		return
	}
	c.earlier = nil
	if c.again {
		c.again = false
		for _, p := range c.ports {
			p.searched = false
		}
	}
}
