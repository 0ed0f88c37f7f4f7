package proxy

import (
	"sync"

	"kubeproxy/internal/lograte"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/ports"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Proxier keeps one listener open for each port that a service claims, and sees each client of it
// to an endpoint. It is the one handler of this package: a batch, with its services and endpoints, is applied when
// OnUpdate returns.
type Proxier struct {
	cfg     Config
	lb      *balance.LoadBalancerRR
	engine  engine.Engine
	own     *admit.OwnPorts
	tallies traffic.Tallies
	kernel  *kernel.Carrier // nil: it carries nothing

	kernelOff error // why it cannot although it is to; nil: it can, or is not to; constant

	synced chan struct{} // closed once the first batch has been applied
	wake   chan struct{} // capacity 1: a full channel means Run already knows that a port could not be opened

	// OnUpdate, Run and stop hold mu while they wait for the engine. They take view as well, inside mu, for each
	// change of what a status reads: services, listeners, and the claims, socket and err of each. So a status takes view
	// alone, and waits neither for the data path nor for an update in progress.
	view sync.RWMutex

	mu        sync.Mutex // guards the fields below
	draining  bool       // listeners drain where they would be closed: see engine.Socket
	stopped   bool
	partial   bool                                       // a source had not been read at the last batch
	stage     stage                                      // of a take-over
	settled   sync.Cond                                  // on mu: a take-over from this process has ended
	inherited map[registry.ListenerID][]registry.PortKey // until Serve: the order of claims of a predecessor
	adoption  *adoption                                  // until Adopt has ended: of what a predecessor carries; nil for none
	lent      int64                                      // how far lending has come, as the engine counts; negative: to its end
	services  map[registry.Name]*registry.Service
	listeners map[registry.ListenerID]*listener
	refused   map[registry.ListenerID]*refusedPort // that services ask for in vain
	unopened  map[registry.ListenerID]*listener    // those listeners that could not be opened
	gate      *ports.Gate                          // says which of them may be tried now

	untold     map[registry.ListenerID]bool     // ports that the keeper has to be told of; true: they were closed since it was told last
	unkept     map[registry.ListenerID]struct{} // open ports that it could not be given, most often for want of room; none of them is untold
	kept       map[registry.ListenerID]struct{} // what the keeper has of a predecessor, until it is told
	telling    registry.ListenerID              // the port that it is being told of; zero: none
	keeperWake chan struct{}                    // capacity 1: full when untold is not empty
	unclaimed  map[registry.ListenerID]struct{} // ports of inherited sockets that stay open though no service claims them

	conflicts, forbidden lograte.Limiter[aboutPort] // of lines about ports that another service has, or that none may have
	refusals, reopened   lograte.Limiter[aboutPort] // the same of ports that cannot be opened, and that can again
	shortages            lograte.Limiter[struct{}]  // of descriptors for ports
	heldBack             bool                       // lines of the latter three were held back
}

// aboutPort is what a log line about a port is about.
type aboutPort struct {
	id      registry.ListenerID
	service registry.PortKey
	over    bool // the trouble that an earlier line was about
}

// NewProxier returns a proxier whose clients are given the endpoints that lb chooses. lb must not be another proxier's.
// The proxier opens nothing before the first batch.
func NewProxier(cfg Config, lb *balance.LoadBalancerRR) *Proxier {
	given := cfg
	cfg = cfg.withDefaults()
	own := admit.NewOwnPorts(cfg.BindAddress)
	own.Reserve(cfg.ReservedPorts)
	lb.OnRemoval, lb.Allowed, lb.Balance, lb.Node = cfg.OnRemoval, cfg.AllowedEndpoints, cfg.Balance, cfg.Node
	p := &Proxier{
		cfg:       cfg,
		lb:        lb,
		own:       own,
		tallies:   traffic.Tallies{All: make(map[traffic.TallyKey]*traffic.Tally)},
		synced:    make(chan struct{}),
		wake:      make(chan struct{}, 1),
		services:  make(map[registry.Name]*registry.Service),
		listeners: make(map[registry.ListenerID]*listener),
		refused:   make(map[registry.ListenerID]*refusedPort),
		unopened:  make(map[registry.ListenerID]*listener),
		gate:      ports.NewGate(cfg.HeldPortDelay, cfg.HeldPortProbePeriod),

		untold:     make(map[registry.ListenerID]bool),
		unkept:     make(map[registry.ListenerID]struct{}),
		kept:       make(map[registry.ListenerID]struct{}),
		keeperWake: make(chan struct{}, 1),
		unclaimed:  make(map[registry.ListenerID]struct{}),
	}
	p.settled.L = &p.mu
	cfg.EachActive = p.tallies.EachActive
	p.engine = newEngine(cfg, own)
	if addresses := p.engine.Addresses(); addresses != nil {
		lb.Checker = checks.New(cfg.Checks, addresses, addresses.Budget)
	}
	p.kernel = p.newCarrier(given)
	return p
}

// Synced is closed once the first batch has been applied: from then on every port that can be open is.
func (p *Proxier) Synced() <-chan struct{} { return p.synced }
