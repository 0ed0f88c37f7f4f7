package tcp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Connection is the account of one TCP client, from its admission to its one ending, whichever engine carries it. It belongs to one
// goroutine at a time. It opens nothing, and none of its methods waits.
type Connection struct {
	base   *engine.Base
	Claim  *engine.Claim // under which it began, or which it has followed since
	client netip.AddrPort
	began  time.Duration // a time of package monotonic

	port           uint16
	attempts       uint16             // endpoints that were tried
	awaitsHeader   bool               // the client has still to say who it is
	perClient      bool               // it is counted as one of its client address
	endpointEnded  bool               // and is not counted among those of its endpoint that are a load
	Stayed         bool               // in a predecessor, at an endpoint whose checks failed
	dialled        time.Duration      // until it got its endpoint, or none
	Endpoint       *rotation.Endpoint // nil until it has one
	others         *addresses         // nil while there are none
	Sent, Received uint64             // bytes to the endpoint, and to the client
}

// Addresses are those that a connection may have beside its client's, what its PROXY header said, and the endpoints that failed a client that got
// none. Most have none of them. The lifetime of the endpoint is among them where its end may close the connection.
type addresses struct {
	local netip.AddrPort // of this proxy, towards the endpoint; zero without engine.Config.NoteLocal
	via   netip.AddrPort // of the proxy that the client came by; zero if it came itself
	goal  netip.AddrPort // that the client connected to, as that proxy says
	tlvs  string         // what that proxy says beside the addresses
	tried string         // the endpoints that a client was not given, and why

	lifetime   *removal.Lifetime // of the endpoint, that the connection began under; nil if its end closes nothing, or it is not known yet
	introduced uint16            // bytes of the client's own PROXY header, which do not count as sent
}

// other returns the other addresses for one to be set.
func (c *Connection) other() *addresses {
	if c.others == nil {
		c.others = new(addresses)
	}
	return c.others
}

// Choose begins the choice of an endpoint. What the service has clients wait for one counts from their arrival, also when they choose again.
func (c *Connection) Choose() rotation.Choice {
	choice := c.Claim.Choose(c.client.Addr())
	if choice.Wait > 0 {
		choice.Wait = max(0, choice.Wait-c.age())
	}
	return choice
}

// Given notes which endpoint answered, and those that had not before it. It reports that the client has begun.
func (c *Connection) Given(e *rotation.Endpoint, failed []Failure) {
	c.tried(failed)
	c.attempts++
	c.Endpoint = e
	if c.base.Cfg.Cuts(c.Claim.Terms) {
		c.other().lifetime = e.Lifetime()
	}
	e.Given()
	if v := glog.V(3); v {
		v.Infof("%s: %s → %s", c.Claim.Key, c.client, e.Addr)
	}
	if c.base.Cfg.Began != nil {
		c.base.Cfg.Began(c.soFar())
	}
}

// Lifetimes returns those that the connection began under, of its service and of its endpoint, where their end may close it; else none. One
// that was adopted has them from the first call on: by then it must be known here what checks have found. If they fail here, and
// those of another endpoint pass, it is closed, unless it stayed in the predecessor.
func (c *Connection) Lifetimes() []*removal.Lifetime {
	if !c.base.Cfg.Cuts(c.Claim.Terms) {
		return nil
	}
	o := c.other()
	switch {
	case o.lifetime != nil:
	case c.Stayed:
		o.lifetime = c.Endpoint.PresentLifetime()
	default:
		o.lifetime = c.Endpoint.Lifetime()
	}
	return []*removal.Lifetime{c.Claim.Lifetime, o.lifetime}
}

// Stays reports whether checks of its endpoint fail and the connection goes on there, also in a successor.
func (c *Connection) Stays() bool {
	if c.Endpoint == nil {
		return false
	}
	var began *removal.Lifetime
	if c.others != nil {
		began = c.others.lifetime
	}
	return c.Endpoint.StaysWhileFailing(began)
}

// GoesFrom notes the proxy's own address towards the endpoint, before Given does the endpoint.
func (c *Connection) GoesFrom(local netip.AddrPort) { c.other().local = local }

// EndpointEnded notes that the endpoint has ended its side, so that the connection is no load of it any more. An engine calls it before the
// client is told, so the next client finds the endpoint as it is.
func (c *Connection) EndpointEnded() {
	if !c.endpointEnded && c.Endpoint != nil { // one that was adopted may have none
		c.endpointEnded = true
		c.Endpoint.Finished()
	}
}

// leave has the endpoint count the connection no more.
func (c *Connection) leave() {
	c.Endpoint.Left(c.endpointEnded)
}

// tried notes the endpoints that did not answer.
func (c *Connection) tried(failed []Failure) {
	c.dialled = c.age()
	t := c.Claim.Tally
	for _, f := range failed {
		if v := glog.V(3); v {
			v.Infof("%s: %s is not served by %s: %v", c.Claim.Key, c.client, f.Endpoint.Addr, f.Err)
		}
		switch f.reason() {
		case traffic.OwnListener, traffic.EndpointNotAllowed:
			c.base.Lines.ReportUnusable(c.Claim.Key, f.Endpoint, f.Err)
		case traffic.DialFailed:
			t.DialFailures.Add(1)
			c.attempts++
		}
	}
}

// TurnAway ends a client that gets no endpoint, and logs why, with the flag that limits it, at most a few times a minute. The engine
// resets the client, since a clean end could look like an empty answer.
func (c *Connection) TurnAway(why traffic.Reason, failed []Failure) {
	if why == traffic.NoEndpoints {
		why = c.Claim.Rotation.WhyNone(registry.TCP, c.Claim.Terms)
	}
	c.tried(failed)
	c.warn(why, failed)
	if len(failed) > 0 && c.base.Cfg.Ended != nil {
		c.other().tried = Tell(failed)
	}
	c.End(why)
}

func (c *Connection) warn(why traffic.Reason, failed []Failure) {
	if why < traffic.FirstTurnedAway || why > traffic.LastTurnedAway {
		return // the proxy is being stopped, or the service has gone
	}
	if note, ok := c.base.Lines.MayLogTurnedAway(c.Claim.Key, why); ok {
		glog.Warningf("%s: client %s was turned away: %s%s", c.Claim.Key, c.client, c.Explain(why, failed), note)
	}
}

// Explain says in words why a client is turned away.
func (c *Connection) Explain(why traffic.Reason, failed []Failure) string {
	switch text := why.Refusal(); {
	case why == traffic.ServiceLimit && c.Claim.Tally.Active.Load() <= c.base.Cfg.ConnectionsOf(c.Claim.Terms):
		return "the node has nearly as many connections as allowed (-max_connections), and the service has its share of them"
	case why == traffic.ServiceLimit:
		return fmt.Sprintf("%s: %d", text, c.base.Cfg.ConnectionsOf(c.Claim.Terms))
	case why == traffic.ClientLimit:
		return fmt.Sprintf("%s: %d", text, c.base.Cfg.PerClientOf(c.Claim.Terms))
	case why == traffic.ConnectionLimit:
		return fmt.Sprintf("%s: %d", text, c.base.Cfg.MaxConnections)
	case why == traffic.EndpointLimit:
		return fmt.Sprintf("%s: %d", text, c.Claim.Terms.Limits.PerEndpoint)
	case text != "":
		return text
	}
	if i := slices.IndexFunc(failed, Failure.lacksLocalPort); i >= 0 && why == traffic.DescriptorLimit {
		return fmt.Sprintf("no local port is left towards %s: there are as many as net.ipv4.ip_local_port_range has, for each endpoint", failed[i].Endpoint.Addr)
	}
	if n := len(failed); n > 0 {
		return fmt.Sprintf("no endpoint of the %d tried answers: %s", n, Tell(failed))
	}
	return admit.ErrNoDescriptors.Error()
}

// End counts the ending of the client, and reports it, after the last of its bytes. c must not be used after it.
func (c *Connection) End(why traffic.Reason) {
	c.Claim.Tally.End(why)
	c.base.Connections.Add(-1)
	c.part()
	if c.Endpoint != nil {
		c.leave()
		if v := glog.V(4); v {
			v.Infof("%s: %s → %s has ended: %d bytes there, %d back; %s", c.Claim.Key, c.client, c.Endpoint.Addr, c.Sent, c.Received, why)
		}
	}
	if c.base.Cfg.Ended != nil {
		e := c.soFar()
		e.Reason = why
		c.base.Cfg.Ended(e)
	}
}

// Now returns the client as it is. Idle, states and the local address are for the engine to add.
func (c *Connection) Now() traffic.Client {
	now := traffic.Client{
		Listener: c.listener(),
		Service:  c.Claim.Key,
		Client:   c.client,
		Age:      c.age(),
		Idle:     -1,
		Sent:     c.Sent,
		Received: c.Received,
	}
	if c.Endpoint != nil {
		now.Endpoint = c.Endpoint.Addr
	}
	if c.others != nil {
		now.Via = c.others.via
	}
	return now
}

// listener is what the client connected to.
func (c *Connection) listener() registry.ListenerID {
	return registry.ListenerID{Addr: c.Claim.ID.Addr, Protocol: c.Claim.Tally.Protocol, Number: c.port}
}

// age is how long ago the client was accepted.
func (c *Connection) age() time.Duration { return monotonic.Now() - c.began }

// soFar is what an ending says, but for its reason.
func (c *Connection) soFar() traffic.Ending {
	age := c.age()
	e := traffic.Ending{
		Listener: c.listener(),
		Service:  c.Claim.Key,
		Client:   c.client,
		Began:    time.Now().Add(-age),
		Duration: age,
		Dialled:  c.dialled,
		Attempts: int(c.attempts),
		Sent:     c.Sent,
		Received: c.Received,
	}
	if c.Endpoint != nil {
		e.Endpoint = c.Endpoint.Addr
	}
	if c.others != nil {
		e.Local, e.Via, e.TLVs, e.Tried = c.others.local, c.others.via, c.others.tlvs, c.others.tried
	}
	return e
}
