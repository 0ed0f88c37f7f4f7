package handover

import (
	"errors"
	"net/netip"
	"time"

	"kubeproxy/registry"
)

// A Listener is one port that services claim. Its descriptor is the open socket; there is none if the port could not be opened.
type Listener struct {
	ID     registry.ListenerID
	Bind   netip.Addr // that the socket is bound to: that of ID, or -bind_address
	Open   bool
	Claims []registry.PortKey // the owner first, then those who wait, in order; the zero PortKey alone: none is known yet, and clients wait
	Held   bool               // it is not open, for another program had the port when it was last tried
	Kept   bool               // a keeper has a copy of the socket or, if it is not open, of one that it has yet to close
}

func (*Listener) kind() uint16 { return kindListener }
func (l *Listener) descriptors() int {
	if l.Open {
		return 1
	}
	return 0
}

func (l *Listener) fields(c *codec) {
	c.protocol(&l.ID.Protocol)
	c.uint16(&l.ID.Number)
	c.ip(&l.Bind)
	c.bool(&l.Open)
	list(c, &l.Claims, (*codec).portKey)
	c.ip(&l.ID.Addr)
	c.bool(&l.Held)
	c.bool(&l.Kept)
}

func (l *Listener) problem() error {
	switch {
	case l.ID.Number == 0:
		return errors.New("no port")
	case !l.Bind.IsValid():
		return errors.New("no address")
	case len(l.Claims) == 0:
		return errors.New("no owner")
	case l.ID.Addr.IsValid() && l.ID.Addr != l.Bind:
		return errors.New("it is bound elsewhere")
	}
	return nil
}

// A UDPPort is what is known of the queue of a UDP listener.
type UDPPort struct {
	Number uint16
	Lost   uint32     // datagrams that the kernel had no room for, as far as it was counted; it wraps around
	At     netip.Addr // of the listener; the zero Addr: the node
}

func (*UDPPort) kind() uint16      { return kindUDPPort }
func (*UDPPort) descriptors() int  { return 0 }
func (p *UDPPort) fields(c *codec) { c.uint16(&p.Number); c.uint32(&p.Lost); c.ip(&p.At) }
func (p *UDPPort) problem() error {
	if p.Number == 0 {
		return errors.New("no port")
	}
	return nil
}

// A Rotation is the endpoints of one port of a service, as clients have found them.
type Rotation struct {
	Service   registry.PortKey
	Next      []registry.Addr // the endpoints whose turn it is next, in order; a few are enough
	Endpoints []Endpoint      // of which anything is known, but for checks that passed
	Asked     [2]Asked        // by protocol: what checks have found
}

// An Asked is what checks over one protocol ask the endpoints of a rotation, and which of the next ones passed.
type Asked struct {
	Question uint64 // a hash of what they are asked; 0: they are not checked
	Passed   uint64 // bit i: the last check of Next[i] passed
}

// An Endpoint is what is known of one endpoint.
type Endpoint struct {
	Addr   registry.Addr
	Health [2]Health // by protocol
	Checks [2]Check  // by protocol
}

// A Check is what checks over one protocol have found of an endpoint that did not pass the last one, or fails. The zero value is any other's.
type Check struct {
	Known bool // the others are set
	Fails bool
	For   time.Duration // how long it has failed, or passed
	Err   string        // of the last check; "" when that passed
	Run   uint64        // results in a row that speak against Fails
}

// A Health is what is known of an endpoint over one protocol.
type Health struct {
	Failing             bool          // the last attempt failed
	Returns             time.Duration // when it is offered again, if it is failing; negative when that time has come
	ConsecutiveFailures int64
	HalfOpen            bool          // one client is finding out
	Aside               time.Duration // for how long it is not offered because its name or address could not be used; 0: it is
	Unusable            string        // the reason for which the last client could not use them; "": none
	Warms               time.Duration // for how long its share of clients still grows, in its slow start; 0: it has all of it
	Warmed              time.Duration // and for how long it has grown
	FailingFor          time.Duration // since the first of the attempts that failed
}

func (*Rotation) kind() uint16     { return kindRotation }
func (*Rotation) descriptors() int { return 0 }

func (r *Rotation) fields(c *codec) {
	c.portKey(&r.Service)
	list(c, &r.Next, (*codec).endpoint)
	list(c, &r.Endpoints, func(c *codec, e *Endpoint) {
		c.endpoint(&e.Addr)
		for i := range e.Health {
			h := &e.Health[i]
			c.bool(&h.Failing)
			c.duration(&h.Returns)
			c.int(&h.ConsecutiveFailures)
			c.bool(&h.HalfOpen)
			c.duration(&h.Aside)
		}
		for i := range e.Checks {
			h, k := &e.Health[i], &e.Checks[i]
			c.duration(&h.Warms)
			c.duration(&h.Warmed)
			c.bool(&k.Known)
			c.bool(&k.Fails)
			c.duration(&k.For)
			c.text(&k.Err)
			c.uint(&k.Run)
		}
		for i := range e.Health {
			c.text(&e.Health[i].Unusable)
		}
		for i := range e.Health {
			c.duration(&e.Health[i].FailingFor)
		}
	})
	for i := range r.Asked {
		c.uint(&r.Asked[i].Question)
		c.uint(&r.Asked[i].Passed)
	}
}

func (r *Rotation) problem() error {
	for _, e := range r.Endpoints {
		for _, h := range e.Health {
			if h.ConsecutiveFailures < 0 || h.Aside < 0 || h.Warms < 0 || h.Warmed < 0 || h.FailingFor < 0 {
				return errors.New("negative number")
			}
		}
		for _, k := range e.Checks {
			if k.For < 0 {
				return errors.New("negative number")
			}
		}
	}
	return named(r.Service)
}

// Affinities are clients that one port of a service remembers, those who began longest ago first.
type Affinities struct {
	Service  registry.PortKey
	Protocol registry.Protocol
	Clients  []Affinity
}

// An Affinity is the endpoint that one client was given.
type Affinity struct {
	Client   netip.Addr
	Endpoint registry.Addr
	Age      time.Duration // since the client last began
	Timeout  time.Duration
}

func (*Affinities) kind() uint16     { return kindAffinities }
func (*Affinities) descriptors() int { return 0 }

func (a *Affinities) fields(c *codec) {
	c.portKey(&a.Service)
	c.protocol(&a.Protocol)
	list(c, &a.Clients, func(c *codec, a *Affinity) {
		c.ip(&a.Client)
		c.endpoint(&a.Endpoint)
		c.duration(&a.Age)
		c.duration(&a.Timeout)
	})
}

func (a *Affinities) problem() error {
	for _, client := range a.Clients {
		if !client.Client.IsValid() || client.Age < 0 || client.Timeout < 0 {
			return errors.New("that is no affinity")
		}
	}
	return named(a.Service)
}

func named(service registry.PortKey) error {
	if service.Name.Name == "" {
		return errors.New("no service")
	}
	return nil
}
