package handover

import (
	"errors"
	"net/netip"
	"time"

	"kubeproxy/registry"
)

// A Listener is one port that services claim. Its descriptor is the open socket; there is none if the port could not be opened.
type Listener struct {
	ID     registry.NodePort
	Bind   netip.Addr // that the socket is bound to
	Open   bool
	Claims []registry.PortKey // the owner first, then those who wait, in order
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
}

func (l *Listener) problem() error {
	switch {
	case l.ID.Number == 0:
		return errors.New("no port")
	case !l.Bind.IsValid():
		return errors.New("no address")
	case len(l.Claims) == 0:
		return errors.New("no owner")
	}
	return nil
}

// A UDPPort is what is known of the queue of a UDP listener.
type UDPPort struct {
	Number uint16
	Lost   uint32 // datagrams that the kernel had no room for, as far as it was counted; it wraps around
}

func (*UDPPort) kind() uint16      { return kindUDPPort }
func (*UDPPort) descriptors() int  { return 0 }
func (p *UDPPort) fields(c *codec) { c.uint16(&p.Number); c.uint32(&p.Lost) }
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
	Endpoints []Endpoint      // of which anything is known
}

// An Endpoint is what is known of one endpoint.
type Endpoint struct {
	Addr   registry.Addr
	Health [2]Health // by protocol
}

// A Health is what is known of an endpoint over one protocol.
type Health struct {
	Failing             bool          // the last attempt failed
	Returns             time.Duration // when it is offered again, if it is failing; negative when that time has come
	ConsecutiveFailures int64
	HalfOpen            bool          // one client is finding out
	Aside               time.Duration // for how long its name or address cannot be used; 0: it can
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
	})
}

func (r *Rotation) problem() error {
	for _, e := range r.Endpoints {
		for _, h := range e.Health {
			if h.ConsecutiveFailures < 0 || h.Aside < 0 {
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
