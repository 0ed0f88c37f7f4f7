package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
)

// A connection is one TCP client as the books have it: from the moment it was accepted to its one
// ending, whichever engine carries it. It belongs to one goroutine at a time. It opens nothing, and
// nothing of it waits.
type connection struct {
	all    *connections
	claim  *claim // that it began under
	port   uint16
	client netip.AddrPort
	began  time.Time

	dialled        time.Duration // until it was given its endpoint, or none
	attempts       int           // endpoints that were tried
	endpoint       *endpoint     // nil until it is given one
	sent, received uint64        // bytes to the endpoint, and to the client
}

// choose begins the choice of an endpoint.
func (c *connection) choose() choice { return c.claim.choose(c.client.Addr()) }

// follow makes c a client of who owns the port now, as if it had come only now: the claim that it
// began under had nothing to offer it, and has lost the port. False: it is not to be let in there.
func (c *connection) follow(owner *claim) (ok bool) {
	began := c.began
	c.all.now.Add(-1)
	c.claim.tally.active.Add(-1)
	*c, ok = c.all.admit(owner, c.port, c.client)
	c.began = began
	return ok
}

// given notes which endpoint answered, and those that had not before it.
func (c *connection) given(e *endpoint, failed []failure) {
	c.tried(failed)
	c.attempts++
	c.endpoint = e
	e.given()
	if v := glog.V(3); v {
		v.Infof("%s: %s → %s", c.claim.key, c.client, e.addr)
	}
}

// tried notes the endpoints that did not answer.
func (c *connection) tried(failed []failure) {
	c.dialled = time.Since(c.began)
	t := c.claim.tally
	for _, f := range failed {
		if v := glog.V(3); v {
			v.Infof("%s: %s is not served by %s: %v", c.claim.key, c.client, f.endpoint.addr, f.err)
		}
		switch f.reason() {
		case OwnListener, EndpointNotAllowed:
			c.all.lines.reportUnusable(c.claim.key, f.endpoint, f.err)
		case DialFailed:
			t.dialFailures.Add(1)
			c.attempts++
		}
	}
}

// turnAway ends a client that is given no endpoint, and says so now and then: why, and which flag to turn. The
// engine resets it, since a clean end could be taken for an empty answer.
func (c *connection) turnAway(why Reason, failed []failure) {
	c.tried(failed)
	c.warn(why, failed)
	c.end(why)
}

func (c *connection) warn(why Reason, failed []failure) {
	if why < firstTurnedAway || why > lastTurnedAway {
		return // it was we who went
	}
	about := aboutClients{c.claim.key, why}
	if why == ConnectionLimit {
		about.service = registry.PortKey{} // one line for all services
	}
	if note, ok := c.all.lines.turnedAway.Allow(about); ok {
		glog.Warningf("%s: client %s was turned away: %s%s", c.claim.key, c.client, c.explain(why, failed), note)
	}
}

// explain says in words why a client is turned away.
func (c *connection) explain(why Reason, failed []failure) string {
	switch why {
	case NoEndpoints:
		return "the service has no endpoints"
	case DialLimit:
		return "as many dials as may be are under way to each endpoint (-max_dials_per_endpoint)"
	case SourceNotAllowed:
		return "it lies outside the source ranges of the service"
	case ServiceLimit:
		return fmt.Sprintf("the service has %d connections, as many as it may (-max_connections_per_service)", c.all.perService)
	case ConnectionLimit:
		return fmt.Sprintf("there are %d connections in all, as many as there may be (-max_connections)", c.all.max)
	}
	if i := slices.IndexFunc(failed, failure.lacksLocalPort); i >= 0 && why == DescriptorLimit {
		return fmt.Sprintf("no local port is left towards %s: there are as many as net.ipv4.ip_local_port_range has, for each endpoint", failed[i].endpoint.addr)
	}
	if n := len(failed); n > 0 {
		return fmt.Sprintf("no endpoint of the %d tried answers; the last was %s: %v", n, failed[n-1].endpoint.addr, failed[n-1].err)
	}
	return errNoDescriptors.Error()
}

// end enters the ending of the client into the books, after the last of its bytes. It is the last
// that happens to c.
func (c *connection) end(why Reason) {
	c.claim.tally.end(why)
	c.all.now.Add(-1)
	if c.endpoint != nil {
		c.endpoint.left()
		if v := glog.V(4); v {
			v.Infof("%s: %s → %s has ended: %d bytes there, %d back; %s", c.claim.key, c.client, c.endpoint.addr, c.sent, c.received, why)
		}
	}
	if c.all.ended != nil {
		c.all.ended(c.ending(why))
	}
}

func (c *connection) ending(why Reason) Ending {
	e := Ending{
		Protocol: c.claim.tally.protocol,
		Service:  c.claim.key,
		Port:     c.port,
		Client:   c.client,
		Began:    c.began,
		Duration: time.Since(c.began),
		Dialled:  c.dialled,
		Attempts: c.attempts,
		Sent:     c.sent,
		Received: c.received,
		Reason:   why,
	}
	if c.endpoint != nil {
		e.Endpoint = c.endpoint.addr
	}
	return e
}
