// Package localhealth tells load balancers of a cluster whether the node has an endpoint for clients of a service: the service's traffic policy is
// Local, so a node without one refuses its clients. Each such service has a port for that, healthCheckNodePort.
package localhealth

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/crowd"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

const (
	maxPorts = 1000        // of all services
	room     = 16          // clients of one port at a time
	retry    = time.Second // after a port could not be opened: a predecessor has it until it ends
)

// A Server answers at the ports. It is a handler of a config.Broadcaster; [Server.Run] opens them.
type Server struct {
	bind    netip.Addr
	ready   func() bool              // the node serves
	local   func(registry.Name) int  // endpoints on the node that new clients of a service can be given
	changed chan struct{}            // capacity 1: the wanted ports are others than those that are open
	failed  lograte.Limiter[uint16]  // of lines about ports that cannot be opened
	mu      sync.Mutex               // guards the fields below
	ports   map[registry.Name]uint16 // of the services that have one
}

// New returns a server that listens on an address. It says no while the node is not ready, and for a service that has no local endpoints: those
// on the node that its new clients can be given now. The records alone do not tell: operators, flags and checks count too.
func New(bind netip.Addr, ready func() bool, local func(service registry.Name) int) *Server {
	return &Server{bind: bind, ready: ready, local: local, changed: make(chan struct{}, 1), ports: make(map[registry.Name]uint16)}
}

// OnUpdate implements config.Handler. It opens nothing.
func (s *Server) OnUpdate(b registry.Batch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, service := range b.Services {
		delete(s.ports, name)
		if service != nil && service.Terms().HealthCheckPort != 0 {
			s.ports[name] = service.Terms().HealthCheckPort
		}
	}
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) {
	open := make(map[uint16]*http.Server)
	var serving sync.WaitGroup
	defer serving.Wait()
	defer func() {
		for _, server := range open {
			server.Close()
		}
	}()
	for {
		wanted, missing := s.wanted(), false
		for port, server := range open {
			if _, ok := wanted[port]; !ok {
				server.Close()
				delete(open, port)
			}
		}
		for port, name := range wanted {
			if open[port] != nil {
				continue
			}
			address := netip.AddrPortFrom(s.bind, port).String()
			if s.bind == netip.IPv4Unspecified() {
				address = ":" + strconv.Itoa(int(port)) // all addresses of both families, as for clients
			}
			l, err := net.Listen("tcp", address)
			if err != nil {
				missing = true
				if note, ok := s.failed.Allow(port); ok {
					glog.Errorf("cannot tell load balancers of endpoints of %s (healthCheckNodePort): %v; trying again until it can%s", name, err, note)
				}
				continue
			}
			server := &http.Server{Handler: s.answer(port), ReadHeaderTimeout: retry, WriteTimeout: retry, MaxHeaderBytes: 8 << 10}
			server.SetKeepAlivesEnabled(false)
			open[port] = server
			serving.Go(func() {
				if err := server.Serve(crowd.New(l, room)); !errors.Is(err, http.ErrServerClosed) {
					glog.Errorf("port %d, for load balancers: %v", port, err)
				}
			})
		}
		var again <-chan time.Time
		if missing {
			again = time.After(retry)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-again:
		}
	}
}

// wanted returns the ports that services ask for. Of two services that ask for one, the first by name has it.
func (s *Server) wanted() map[uint16]registry.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[uint16]registry.Name)
	for name, port := range s.ports {
		if first, taken := all[port]; (!taken && len(all) < maxPorts) || taken && name.Compare(first) < 0 {
			all[port] = name
		}
	}
	return all
}

// answer is what today's kube-proxy answers: 200 while the node has an endpoint for clients, and 503 otherwise.
func (s *Server) answer(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		name, ok := s.wanted()[port]
		n, ready := s.local(name), s.ready()
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(n))
		if !ok || !ready || n == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{ // an error is the client's
			"service":             map[string]string{"namespace": name.Namespace, "name": name.Name},
			"localEndpoints":      n,
			"serviceProxyHealthy": ready,
		})
	})
}
