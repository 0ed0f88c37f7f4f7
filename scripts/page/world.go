//go:build js

package main

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A world is all that the page shows.
type world struct {
	began time.Time
	store *store
	nodes []*node
	hosts []*host

	mu      sync.Mutex // guards the fields below
	clients []*client  // in the order in which they came
	came    int        // how many
	senders map[string]*client
	events  []event // since the last snapshot
}

// An event is something that has happened, for the reader.
type event struct {
	At   float64 `json:"at"`   // milliseconds since the beginning
	Kind string  `json:"kind"` // client, ending, served, error
	Text string  `json:"text"`
}

// A node is one kube-proxy.
type node struct {
	name     string
	addr     netip.Addr
	source   *source
	mux      *config.Mux
	balancer *balance.LoadBalancerRR
	proxier  *proxy.Proxier
}

// hostNames are the names of the endpoints: what they answer.
var hostNames = []string{"one", "two", "three", "four"}

func newWorld(nodes int) *world {
	w := &world{began: time.Now(), store: newStore(), senders: make(map[string]*client)}
	for i, name := range hostNames {
		w.hosts = append(w.hosts, &host{name: name, addr: netip.AddrFrom4([4]byte{10, 77, 2, byte(11 + i)})})
	}
	for i := range min(max(nodes, 1), 3) {
		w.nodes = append(w.nodes, w.newNode(i))
	}
	return w
}

// newNode connects what cmd/internal/node connects, without operators and take-over.
func (w *world) newNode(i int) *node {
	n := &node{name: fmt.Sprintf("node%d", i+1), addr: netip.AddrFrom4([4]byte{10, 77, 1, byte(21 + i)}), source: newSource(w.store)}
	cfg := proxy.Defaults()
	cfg.BindAddress = n.addr
	cfg.Engine = proxy.Portable
	cfg.Ended = func(e traffic.Ending) { w.ended(n, e) }
	n.balancer = balance.NewLoadBalancerRR(false) // -rr_random_start=false: what happens once happens again
	n.proxier = proxy.NewProxier(cfg, n.balancer)
	broadcaster := config.NewBroadcaster()
	broadcaster.Add(n.proxier)
	n.mux = config.NewMux(broadcaster)
	return n
}

// start has endpoints answer and nodes serve.
func (w *world) start(ctx context.Context) {
	for _, h := range w.hosts {
		if err := h.set("up"); err != nil {
			w.event("error", "%v", err)
		}
	}
	for _, n := range w.nodes {
		updates := n.mux.Channel(n.source.Name())
		for what, run := range map[string]func() error{
			"the source":  func() error { return n.source.Run(ctx, updates) },
			"the mux":     func() error { return n.mux.Run(ctx) },
			"the proxier": func() error { return n.proxier.Run(ctx) },
		} {
			go func() {
				if err := run(); err != nil {
					glog.Errorf("%s: %s has ended: %v", n.name, what, err)
				}
			}()
		}
	}
}

// since is the time of the world in milliseconds.
func (w *world) since() float64 { return float64(time.Since(w.began).Microseconds()) / 1000 }

func (w *world) event(kind, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event{At: w.since(), Kind: kind, Text: fmt.Sprintf(format, args...)})
}

// ended tells what a line of the connection log says.
func (w *world) ended(n *node, e traffic.Ending) {
	endpoint := "no endpoint"
	if e.Endpoint != (registry.Addr{}) {
		endpoint = e.Endpoint.String()
	}
	w.event("ending", "%s %v %v: %v to %s, reached in %v at attempt %d, %v long, %d bytes there and %d back: %v",
		n.name, e.Listener.Protocol, e.Service, e.Client, endpoint, e.Dialled, e.Attempts, e.Duration, e.Sent, e.Received, e.Reason)
}
