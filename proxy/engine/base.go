package engine

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/time/rate"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Base is what every engine is built on: counters, limits, and the end of all connections.
type Base struct {
	Cfg      Config
	Resolver *admit.Resolver
	Budget   *admit.Budget       // descriptors for clients
	Sessions *admit.SessionLimit // UDP sessions in all

	Connections atomic.Int64  // of TCP clients, in all
	fair        fairness      // of services towards one another, when these are nearly used up
	Newcomers   *rate.Limiter // UDP sessions that begin
	Lines       lines
	Pauses      atomic.Uint64 // that accepting made because it failed

	inherited map[registry.ListenerID]int // sockets of a predecessor's listeners that Listen has not taken yet
	shares    bool                        // the socket that is being opened has others beside it

	Ctx  context.Context // ends when what is left is to be cut
	Cut  context.CancelFunc
	Work sync.WaitGroup // every goroutine of the engine
}

// Init prepares the base of an engine, before its first port is opened. cfg has its defaults filled in; own knows the ports of this
// proxy, which no endpoint may be.
func (c *Base) Init(cfg Config, own *admit.OwnPorts) {
	c.Cfg = cfg
	sockopt.PrepareDescriptors()
	c.Resolver = admit.NewResolver(own)
	c.Resolver.Allowed = cfg.AllowedEndpoints
	c.Budget = admit.NewBudget(sockopt.DescriptorLimit())
	c.Resolver.Budget = c.Budget
	c.Sessions = admit.NewSessionLimit(cfg.MaxUDPSessions)
	c.Newcomers = admit.NewPace(cfg.MaxNewUDPSessions)
	c.Ctx, c.Cut = context.WithCancel(context.Background())
}

// An Open opens the socket of a listener, for its owner.
type Open func(id registry.ListenerID, owner *atomic.Pointer[Claim]) (Socket, error)

// ListenBy opens the socket of one listener, by tcp or udp as its protocol wants, if there is a descriptor for it. Closing
// the socket has to give the descriptor back: see [admit.Budget.ReleaseOfListener]. beside is as that of [Engine].Listen.
func (c *Base) ListenBy(id registry.ListenerID, owner *atomic.Pointer[Claim], tcp, udp Open, beside ...Socket) (Socket, error) {
	open := tcp
	switch id.Protocol {
	case registry.TCP:
	case registry.UDP:
		open = udp
	default:
		return nil, fmt.Errorf("cannot carry %s", id.Protocol)
	}
	if err := c.Budget.TakeForListener(); err != nil {
		return nil, err
	}
	end := c.shareWith(beside)
	s, err := open(id, owner)
	end(s)
	if err != nil {
		c.Budget.ReleaseOfListener()
		return nil, err
	}
	return s, nil
}

// shareWith has the socket that is opened next have its port beside others of ours, until the function that it returns is called
// with that socket, or nil. Linux gives a port at an address and the same port at all addresses to two listening sockets only if both have
// SO_REUSEPORT, and asks for that when they are bound and when they begin to listen. Outside this moment none has it: a socket of
// another program that has it, too, would get a part of the clients.
func (c *Base) shareWith(beside []Socket) (end func(Socket)) {
	if len(beside) == 0 {
		return func(Socket) {}
	}
	set := func(s Socket, on bool) {
		if fd, err := s.Descriptor(); err == nil {
			_ = sockopt.SharePort(fd, on) // if it fails, so does bind(2)
		}
	}
	c.shares = true
	for _, s := range beside {
		set(s, true)
	}
	return func(opened Socket) {
		c.shares = false
		for _, s := range beside {
			set(s, false)
		}
		if opened != nil {
			set(opened, false)
		}
	}
}

// prepare sets the options of a socket that is about to be bound.
func (c *Base) prepare(_, address string, raw syscall.RawConn) (err error) {
	at, _ := netip.ParseAddrPort(address)
	ranged := at.Addr().Is6() && !at.Addr().IsUnspecified() && admit.IsRoutedHere(at.Addr())
	if !c.shares && !ranged {
		return nil
	}
	if cerr := raw.Control(func(fd uintptr) {
		if c.shares {
			err = sockopt.SharePort(int(fd), true)
		}
		if ranged && err == nil {
			err = sockopt.BindAnywhere(int(fd))
		}
	}); cerr != nil {
		return cerr
	}
	return err
}

// MayConnect reports whether a service that has so many TCP connections may have one more, while the node has so many. Any goroutine may call it.
func (c *Base) MayConnect(ofService, ofNode int64) bool {
	free := int64(c.Cfg.MaxConnections) - int64(c.Cfg.MaxConnections)/lastShare
	return ofNode < free || ofService == 0 || c.Cfg.EachActive == nil || c.fair.isBelow(ofService, free, c.Cfg.EachActive)
}

// Addresses returns the resolver of the engine.
func (c *Base) Addresses() *admit.Resolver { return c.Resolver }

// Stalled returns nil: an engine without loops has none that stands still.
func (c *Base) Stalled() error { return nil }

// TurnTimes returns none: an engine without loops has no turns.
func (c *Base) TurnTimes() traffic.TurnTimes { return traffic.TurnTimes{} }

// Paused counts the pauses that accepting made because it failed.
func (c *Base) Paused() uint64 { return c.Pauses.Load() }

// Limits returns how much is used of everything that is bounded: connections, UDP sessions, descriptors, listeners.
func (c *Base) Limits() []traffic.Limit {
	return []traffic.Limit{
		{Name: "connections", Used: int(c.Connections.Load()), Max: c.Cfg.MaxConnections},
		{Name: "udp_sessions", Used: c.Sessions.Counted(), Max: c.Cfg.MaxUDPSessions},
		{Name: "descriptors", Used: int(c.Budget.Used.Load()), Max: c.Budget.Clients},
		{Name: "listeners", Used: int(c.Budget.Open.Load()), Max: c.Budget.Most},
	}
}
