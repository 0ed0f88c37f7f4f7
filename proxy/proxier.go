package proxy

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/traffic"
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

	ReservedPorts []uint16 // TCP ports that no service can claim, and that are no endpoints on this machine: the operators'
	EtcdPorts     []uint16 // TCP ports that no service can claim, since an etcd on this machine has them

	// A port that another program holds is taken once it has been free for HeldPortDelay without interruption, default 15s. The
	// proxier looks at it every HeldPortProbePeriod, default 1s.
	HeldPortDelay, HeldPortProbePeriod time.Duration

	Keeper Keeper // of listening sockets, for the case that this process is killed; nil for none
}

// A PortRange is the ports from First to Last, both included.
type PortRange struct{ First, Last uint16 }

// Defaults returns the defaults that are the same on every machine.
func Defaults() Config { return Config{Config: engine.Defaults(), DrainTimeout: 30 * time.Second} }

func (c Config) withDefaults() Config {
	c.Config = c.Config.WithDefaults()
	c.DrainTimeout = cmp.Or(c.DrainTimeout, Defaults().DrainTimeout)
	c.HeldPortDelay = cmp.Or(c.HeldPortDelay, 15*time.Second)
	c.HeldPortProbePeriod = cmp.Or(c.HeldPortProbePeriod, time.Second)
	return c
}

// A Proxier keeps one listener open for each port that a service claims, and sees each client of it
// to an endpoint. It is the one handler of this package: a batch, with its services and endpoints, is applied when
// OnUpdate returns.
type Proxier struct {
	cfg     Config
	lb      *balance.LoadBalancerRR
	engine  engine.Engine
	own     *admit.OwnPorts
	tallies traffic.Tallies

	synced chan struct{} // closed once the first batch has been applied
	wake   chan struct{} // capacity 1: a full channel means Run already knows that a port could not be opened

	// OnUpdate, Run and stop hold mu while they wait for the engine. They take view as well, inside mu, for each
	// change of what a status reads: services, listeners, and the claims, socket and err of each. So a status takes view
	// alone, and waits neither for the data path nor for an update in progress.
	view sync.Mutex

	mu        sync.Mutex // guards the fields below
	stopped   bool
	stage     stage                                    // of a take-over
	settled   sync.Cond                                // on mu: a take-over from this process has ended
	inherited map[registry.NodePort][]registry.PortKey // until Serve: the order of claims of a predecessor
	services  map[registry.Name]*registry.Service
	listeners map[registry.NodePort]*listener
	refused   map[registry.NodePort]*refusedPort // that services ask for in vain
	unopened  map[registry.NodePort]*listener    // those listeners that could not be opened

	held    map[registry.NodePort]*heldPort // that another program had when they were tried
	probeAt time.Time                       // when they are looked at again

	untold     map[registry.NodePort]bool // ports that the keeper has to be told of; true: they were closed since it was told last
	keeperWake chan struct{}              // capacity 1: full when untold is not empty

	local     localRange // as it was read last
	localRead time.Time
	localOpen [2]int // listeners in it, by protocol

	// What the system says: which ports are in use, which of them by our own connections, and the local range. These are constant
	// but for tests.
	probe     func(bind netip.Addr, ids []registry.NodePort) (inUse map[registry.NodePort]bool)
	ownLocal  func() map[registry.NodePort]bool
	readLocal func() localRange

	conflicts, forbidden lograte.Limiter[aboutPort] // of lines about ports that another service has, or that none may have
	refusals, reopened   lograte.Limiter[aboutPort] // the same of ports that cannot be opened, and that can again
	shortages            lograte.Limiter[struct{}]  // of descriptors for ports
	heldBack             bool                       // lines of the latter three were held back
}

// aboutPort is what a log line about a port is about.
type aboutPort struct {
	id      registry.NodePort
	service registry.PortKey
	over    bool // the trouble that an earlier line was about
}

// NewProxier returns a proxier whose clients are given the endpoints that lb chooses. lb must not be another proxier's.
// The proxier opens nothing before the first batch.
func NewProxier(cfg Config, lb *balance.LoadBalancerRR) *Proxier {
	cfg = cfg.withDefaults()
	own := admit.NewOwnPorts(cfg.BindAddress)
	own.Reserve(cfg.ReservedPorts)
	lb.OnRemoval, lb.Allowed = cfg.OnRemoval, cfg.AllowedEndpoints
	p := &Proxier{
		cfg:       cfg,
		lb:        lb,
		engine:    newEngine(cfg, own),
		own:       own,
		tallies:   traffic.Tallies{All: make(map[traffic.TallyKey]*traffic.Tally)},
		synced:    make(chan struct{}),
		wake:      make(chan struct{}, 1),
		services:  make(map[registry.Name]*registry.Service),
		listeners: make(map[registry.NodePort]*listener),
		refused:   make(map[registry.NodePort]*refusedPort),
		unopened:  make(map[registry.NodePort]*listener),
		held:      make(map[registry.NodePort]*heldPort),

		untold:     make(map[registry.NodePort]bool),
		keeperWake: make(chan struct{}, 1),

		probe:     portsInUse,
		ownLocal:  ownLocalPorts,
		readLocal: readLocalRange,
	}
	p.settled.L = &p.mu
	return p
}

// Synced is closed once the first batch has been applied: from then on every port that can be open is.
func (p *Proxier) Synced() <-chan struct{} { return p.synced }

// OnUpdate applies a batch. The balancer gets the endpoints first, so no port opens before its endpoints are known. Then
// all claims are edited, and each port that was touched is settled once, in order. So two services that swap ports in
// one batch swap two pointers, and no client is refused meanwhile (D34). Endpoints that go are let go last. While a successor
// takes over, OnUpdate waits: see [Proxier.Listeners]. After Run has been told to stop, batches are ignored.
func (p *Proxier) OnUpdate(batch registry.Batch) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitForTakeoverLocked()
	if p.stopped {
		return
	}
	p.lb.SetEndpoints(batch.Endpoints)
	touched := make(map[registry.NodePort]struct{})
	var newcomers []newcomer
	for name, service := range batch.Services {
		p.view.Lock()
		newcomers = append(newcomers, p.editClaimsLocked(name, service, touched)...)
		p.view.Unlock()
	}
	slices.SortFunc(newcomers, func(a, b newcomer) int {
		return cmp.Or(cmp.Compare(p.inheritedRankLocked(a), p.inheritedRankLocked(b)), compareClaims(a.claim, b.claim))
	})
	p.view.Lock()
	for _, n := range newcomers {
		l := p.listeners[n.id]
		if l == nil {
			l = &listener{id: n.id}
			p.listeners[n.id] = l
		}
		l.claims.add(n.claim)
		touched[n.id] = struct{}{}
	}
	p.view.Unlock()
	var due []*listener // only when all others have been closed: there may be descriptors for them then
	freed := false
	for _, id := range slices.SortedFunc(maps.Keys(touched), registry.NodePort.Compare) {
		l := p.listeners[id]
		wasOpen := l.socket != nil
		p.settleLocked(l)
		switch {
		case l.claims.n == 0:
			freed = freed || wasOpen
		case l.socket == nil:
			due = append(due, l)
		}
	}
	if freed {
		due = p.withThoseWithoutLocked(due, touched)
	}
	p.openLocked(due)
	p.lb.LetGo()                  // no port belongs any more to a service that went with its endpoints
	for _, n := range newcomers { // only now: the order of claims is the same, whichever order they came in
		if owner := p.listeners[n.id].claims.first; owner != n.claim {
			n.claim.Waited = true
			if note, ok := p.conflicts.Allow(aboutPort{n.id, n.claim.Key, false}); ok {
				glog.Errorf("%s cannot have %s: %s has it; waiting%s", n.claim.Key, n.id, owner.Key, note)
			}
		}
	}
	select {
	case <-p.synced:
	default:
		glog.Infof("the first state is in force: of %d ports that services claim, %d are open", len(p.listeners), len(p.listeners)-len(p.unopened))
		close(p.synced)
		if p.stage == serves {
			p.closeLeftoverLocked()
		}
	}
}

// A newcomer is a claim on a port that its service did not claim before.
type newcomer struct {
	id    registry.NodePort
	claim *engine.Claim
}

// editClaimsLocked drops the claims that a service no longer makes, renews those whose port has
// another name or other terms now, and returns those that are new. A claim that the service goes on
// making keeps its place, also when the service was deleted and created again in one step: it never
// blinks. A port that no service may have is not claimed at all.
func (p *Proxier) editClaimsLocked(name registry.Name, service *registry.Service, touched map[registry.NodePort]struct{}) []newcomer {
	previous := p.services[name]
	wanted, refused := p.cfg.wanted(service)
	var dropped []*traffic.Tally // given back last, or what a service has carried would be forgotten when it moves to another port
	if previous != nil {
		for _, port := range previous.Ports {
			id := registry.NodePort{Protocol: port.Protocol, Number: port.Number}
			if p.renewRefusedLocked(id, name, refused) {
				continue
			}
			l := p.listeners[id]
			had, want := l.claims.find(name), wanted[id]
			delete(wanted, id)
			switch {
			case want == nil:
				l.claims.remove(had)
				had.Lifetime.End(p.cfg.OnRemoval, traffic.ServiceRemoved)
			case want.Same(had):
				continue
			default:
				want.Lifetime, want.Waited = had.Lifetime, had.Waited
				want.Rotation = p.lb.Hold(want.Key)
				want.Tally = p.tallies.Hold(want.Key, id.Protocol)
				l.claims.replace(had, want)
			}
			p.lb.Release(had.Rotation)
			dropped = append(dropped, had.Tally)
			touched[id] = struct{}{}
		}
	}
	if service != nil {
		p.services[name] = service
		glog.V(3).Infof("service %s: %d ports", name, len(service.Ports))
	} else {
		delete(p.services, name)
		glog.V(3).Infof("service %s is gone", name)
	}
	for id, c := range refused {
		p.refuseLocked(id, c)
	}
	var newcomers []newcomer
	for id, c := range wanted {
		c.Lifetime = new(balance.Lifetime)
		c.Rotation = p.lb.Hold(c.Key)
		c.Tally = p.tallies.Hold(c.Key, id.Protocol)
		newcomers = append(newcomers, newcomer{id, c})
	}
	for _, t := range dropped {
		p.tallies.Release(t)
	}
	return newcomers
}

// wanted makes the claims of a service, without what only the balancer and the tallies can give them. Those on ports that it may
// not have are refused.
func (c *Config) wanted(service *registry.Service) (wanted, refused map[registry.NodePort]*engine.Claim) {
	wanted = make(map[registry.NodePort]*engine.Claim)
	if service == nil {
		return wanted, nil
	}
	for i, port := range service.Ports {
		id, key := registry.NodePort{Protocol: port.Protocol, Number: port.Number}, registry.PortKey{Name: service.Name, Port: port.Name}
		if c.refusal(service.Name, id) != nil {
			if refused == nil {
				refused = make(map[registry.NodePort]*engine.Claim)
			}
			refused[id] = &engine.Claim{Key: key}
			continue
		}
		wanted[id] = &engine.Claim{Key: key, Rank: service.Rank, Since: service.ClaimedSince(i), Terms: service.Terms}
	}
	return wanted, refused
}

// Run tries again to open the ports that could not be opened, until ctx ends. Then it closes every
// listener, lets what is being relayed finish for DrainTimeout, cuts the rest and returns nil. After
// that nothing of the proxier is running, and further batches are ignored.
func (p *Proxier) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	keepCtx, stopKeeping := context.WithCancel(context.WithoutCancel(ctx)) // until all ports are closed
	defer stopKeeping()
	var keeping sync.WaitGroup
	defer keeping.Wait()
	if p.cfg.Keeper != nil {
		keeping.Go(func() { p.keep(keepCtx) })
	}
	for {
		select {
		case <-ctx.Done():
			p.stop()
			stopKeeping()
			// The drain has its own time: the one who told us to stop is not to cut it short.
			drain, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), p.cfg.DrainTimeout, errDrainTimeout)
			defer cancel()
			p.engine.Drain(drain)
			if drain.Err() != nil {
				glog.Warningf("some connections had not finished after %v, and were cut", p.cfg.DrainTimeout)
			} else {
				glog.Info("all connections have finished")
			}
			return nil
		case <-p.wake:
		case <-timer.C:
		}
		next, ok := p.retry()
		if probe, held := p.probeHeld(); held && (!ok || probe.Before(next)) {
			next, ok = probe, true
		}
		if ok {
			timer.Reset(time.Until(next))
		}
	}
}

var errDrainTimeout = errors.New("drain timeout")

// stop closes every listener for good.
func (p *Proxier) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waitForTakeoverLocked()
	if p.stage == adopts {
		p.engine.Release() // the predecessor has them still
	}
	p.closeAllLocked()
	if p.stage == adopts {
		p.engine.Resume()
	}
}

// closeAllLocked closes every listener for good.
func (p *Proxier) closeAllLocked() {
	p.stopped = true
	for _, l := range p.listeners {
		p.closeLocked(l)
	}
}
