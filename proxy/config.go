package proxy

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/ports"
	"kubeproxy/registry"
)

// A Config says how a [Proxier] listens and how long it waits. A zero duration or count means the default.
type Config struct {
	engine.Config

	Engine       Kind
	DrainTimeout time.Duration // how long Run lets relays finish after it was stopped

	// The ports that services may claim. A namespace that NamespacePorts names has those; all others have AllowedPorts. If both are
	// empty, services may claim any port.
	AllowedPorts   []PortRange
	NamespacePorts map[string][]PortRange

	// Addresses at which services may listen beside the node; none: the loopback, and all addresses of the node unless BindAddress names one.
	AllowedListen []netip.Prefix

	ServiceRanges []netip.Prefix // services may have addresses of these also beside BindAddress; that they are routed to this machine is for [anyip.Routes]

	ReservedPorts []uint16 // TCP ports that no service can claim, and that are no endpoints on this machine: the operators'
	EtcdPorts     []uint16 // TCP ports that no service can claim, since an etcd on this machine has them

	// A port that another program holds is taken once it has been free for HeldPortDelay without interruption, default 15s. The
	// proxier looks at it every HeldPortProbePeriod, default 1s.
	HeldPortDelay, HeldPortProbePeriod time.Duration

	Kernel bool // the kernel carries what it can: see package kernel

	Keeper Keeper // of listening sockets, for the case that this process is killed; nil for none
}

// A PortRange is the ports from First to Last, both included.
type PortRange = ports.Range

// Defaults returns the defaults that are the same on every machine.
func Defaults() Config { return Config{Config: engine.Defaults(), DrainTimeout: 30 * time.Second} }

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
	c.DrainTimeout = cmp.Or(c.DrainTimeout, Defaults().DrainTimeout)
	c.HeldPortDelay = cmp.Or(c.HeldPortDelay, 15*time.Second)
	c.HeldPortProbePeriod = cmp.Or(c.HeldPortProbePeriod, time.Second)
	return c
}

// bound is a listener by the address that its socket is bound to.
func (c *Config) bound(id registry.ListenerID) registry.ListenerID {
	id.Addr = c.At(id).Addr()
	return id
}

// Validate tells what in c cannot be: see [engine.Config.Problems]. A range of ports that holds nothing is another problem, and so is an
// engine that this system does not have.
func (c Config) Validate() error {
	errs := []error{c.Problems(), engineProblem(c.Engine)}
	for _, ranges := range append(slices.Collect(maps.Values(c.NamespacePorts)), c.AllowedPorts) {
		for _, r := range ranges {
			if r.First == 0 || r.First > r.Last {
				errs = append(errs, fmt.Errorf("-allowed_ports: %d-%d is no range of ports", r.First, r.Last))
			}
		}
	}
	for _, r := range c.AllowedListen {
		if !r.IsValid() || r.Addr().Is4In6() {
			errs = append(errs, fmt.Errorf("-allowed_listen: %v is no range of addresses; an IPv4 range is written as 10.0.0.0/8", r))
		}
	}
	return errors.Join(errs...)
}
