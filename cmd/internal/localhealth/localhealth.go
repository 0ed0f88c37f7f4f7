// Package localhealth tells load balancers of a cluster whether the node has an endpoint for clients of a service: the service's traffic policy is
// Local, so a node without one refuses its clients. Each such service has a port for that, healthCheckNodePort.
package localhealth

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/crowd"
	"kubeproxy/internal/lograte"
	"kubeproxy/proxy"
	"kubeproxy/registry"
)

// MaxPorts is how many ports a node opens, of all services.
const MaxPorts = 1000

const clientMay = time.Second // take so long to ask, and to read the answer

// A Server answers at the ports. It is a handler of a config.Broadcaster; [Server.Run] opens them.
type Server struct {
	bind    netip.Addr
	ready   func() bool                                         // the node serves
	local   func(registry.Name) int                             // endpoints on the node that new clients of a service can be given
	listen  func(network, address string) (net.Listener, error) // crowd.Listen; a test may have another
	clients *crowd.Listener                                     // of all ports
	wanted  atomic.Pointer[map[uint16]registry.Name]            // the ports to open; the map is replaced, and never changed
	changed chan struct{}                                       // capacity 1: wanted was replaced since Run last read it
	lost    atomic.Pointer[[]Problem]                           // the services that choose gave no port; the list is replaced, and never changed
	trouble lograte.Limiter[uint16]                             // of lines about ports that cannot be opened
	taken   lograte.Limiter[registry.Name]                      // of lines about services whose port another service has
	beyond  lograte.Limiter[struct{}]                           // of lines about ports that are not opened since there are too many
	asked   map[registry.Name]uint16                            // what services ask for; OnUpdate's own

	mu       sync.Mutex       // guards the field below
	unopened map[uint16]error // why wanted ports cannot be opened
}

// New returns a server that listens on an address. It says no while the node is not ready, and for a service that has no local endpoints: those
// on the node that its new clients can be given now. The records alone do not tell: operators, flags and checks count too.
func New(bind netip.Addr, ready func() bool, local func(service registry.Name) int) *Server {
	limit, clients, _ := proxy.DescriptorRoom()
	s := &Server{bind: bind, ready: ready, local: local, listen: crowd.Listen, clients: crowd.New(nil, roomFor(limit-clients)),
		changed: make(chan struct{}, 1), beyond: lograte.Limiter[struct{}]{Lines: 1}, asked: make(map[registry.Name]uint16), unopened: make(map[uint16]error)}
	s.wanted.Store(new(map[uint16]registry.Name))
	s.lost.Store(new([]Problem))
	return s
}

// roomFor says how many clients all ports may have together: beside those of operators they leave most of the descriptors that the proxy keeps in
// reserve. With the 32 of the usual reserve, when one machine asked at 1,000 ports at once, 2 probes at most found no room; at 200 ports none.
func roomFor(reserve int) int { return max(reserve/4, 2) }

// OnUpdate implements config.Handler. It opens nothing.
func (s *Server) OnUpdate(b registry.Batch) {
	changed := false
	for name, service := range b.Services {
		var port uint16
		if service != nil {
			port = service.Terms().HealthCheckPort
		}
		if port == s.asked[name] {
			continue
		}
		changed = true
		if s.asked[name] = port; port == 0 {
			delete(s.asked, name)
		}
	}
	if !changed {
		return
	}
	wanted, lost, left := choose(s.asked)
	s.logTaken(lost)
	if left > 0 {
		if note, ok := s.beyond.Allow(struct{}{}); ok {
			glog.Errorf("%d ports for load balancers (healthCheckNodePort) are not opened: services ask for more than %d, and the lowest are%s", left, MaxPorts, note)
		}
	}
	s.wanted.Store(&wanted)
	s.lost.Store(&lost)
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// choose returns the ports to open, the services that get none, by name, and how many ports it leaves out: of more than MaxPorts, the lowest are
// opened. Of two services that ask for one port, the first by name has it. So all nodes choose alike, and again after a restart.
func choose(asked map[registry.Name]uint16) (wanted map[uint16]registry.Name, lost []Problem, left int) {
	wanted = make(map[uint16]registry.Name)
	for name, port := range asked {
		if first, taken := wanted[port]; !taken || name.Compare(first) < 0 {
			wanted[port] = name
		}
	}
	if left = max(len(wanted)-MaxPorts, 0); left > 0 {
		for _, port := range slices.Sorted(maps.Keys(wanted))[MaxPorts:] {
			delete(wanted, port)
		}
	}
	for name, port := range asked {
		if owner := wanted[port]; owner != name {
			lost = append(lost, Problem{Service: name, Port: port, Owner: owner})
		}
	}
	slices.SortFunc(lost, byService)
	return wanted, lost, left
}

// logTaken logs the services whose port another service has, each once while that lasts.
func (s *Server) logTaken(lost []Problem) {
	before := *s.lost.Load()
	for _, l := range lost {
		if i, ok := slices.BinarySearchFunc(before, l, byService); l.Owner == (registry.Name{}) || ok && before[i] == l {
			continue
		}
		if note, ok := s.taken.Allow(l.Service); ok {
			glog.Errorf("%s and %s have one healthCheckNodePort, %d: load balancers of %[1]s are told about %[2]s; give one of them another%[4]s", l.Service, l.Owner, l.Port, note)
		}
	}
}

// Problems lists what is wrong, by service: one problem at most for each that asks for a port. Any goroutine may call it.
func (s *Server) Problems() []Problem {
	all := slices.Clone(*s.lost.Load())
	wanted := *s.wanted.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	for port, err := range s.unopened {
		if name, ok := wanted[port]; ok { // else Run has yet to forget it
			all = append(all, Problem{Service: name, Port: port, Err: err})
		}
	}
	slices.SortFunc(all, byService)
	return all
}

// setUnopened edits s.unopened.
func (s *Server) setUnopened(edit func(errs map[uint16]error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	edit(s.unopened)
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) {
	p := &ports{Server: s, open: make(map[uint16]*http.Server), missing: make(map[uint16]missing)}
	defer p.close()
	for {
		p.settle(*s.wanted.Load())
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		case <-p.again():
		}
	}
}

// answer is what today's kube-proxy answers: 200 while the node has an endpoint for clients, and 503 otherwise.
func (s *Server) answer(port uint16) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		name, ok := (*s.wanted.Load())[port]
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

// When to try again to open a port.
const (
	retry      = time.Second
	quickRetry = 50 * time.Millisecond // while the port is in use, most likely by a predecessor that ends
	quickFor   = 2 * time.Second       // after that another program has it
)

// The ports are what Run has of each wanted port: it is open or missing.
type ports struct {
	*Server
	open    map[uint16]*http.Server
	missing map[uint16]missing
	serving sync.WaitGroup
}

// A missing port could not be opened.
type missing struct {
	since time.Time
	again time.Time // when to try next
}

// settle closes the ports that are not wanted, and opens those that are, unless it is too early to try again.
func (p *ports) settle(wanted map[uint16]registry.Name) {
	for port, server := range p.open {
		if _, ok := wanted[port]; !ok {
			server.Close()
			delete(p.open, port)
		}
	}
	maps.DeleteFunc(p.missing, func(port uint16, _ missing) bool { _, ok := wanted[port]; return !ok })
	p.setUnopened(func(errs map[uint16]error) {
		maps.DeleteFunc(errs, func(port uint16, _ error) bool { _, ok := wanted[port]; return !ok })
	})
	for port, name := range wanted {
		if p.open[port] != nil || time.Now().Before(p.missing[port].again) {
			continue
		}
		if l, err := p.listen("tcp", p.address(port)); err != nil {
			p.missed(port, name, err)
		} else {
			delete(p.missing, port)
			p.setUnopened(func(errs map[uint16]error) { delete(errs, port) })
			p.open[port] = p.serve(port, l)
		}
	}
}

func (p *ports) address(port uint16) string {
	if p.bind == netip.IPv4Unspecified() {
		return ":" + strconv.Itoa(int(port)) // all addresses of both families, as for clients
	}
	return netip.AddrPortFrom(p.bind, port).String()
}

// missed notes that a port could not be opened. A port that is in use is not logged before quickFor: at a take-over the predecessor has it until it ends.
func (p *ports) missed(port uint16, name registry.Name, err error) {
	now := time.Now()
	m, again := p.missing[port]
	if !again {
		m.since = now
	}
	if errors.Is(err, syscall.EADDRINUSE) && now.Sub(m.since) < quickFor {
		m.again = now.Add(quickRetry)
	} else {
		m.again = now.Add(retry)
		p.setUnopened(func(errs map[uint16]error) { errs[port] = err })
		if note, ok := p.trouble.Allow(port); ok {
			glog.Errorf("cannot tell load balancers of endpoints of %s (healthCheckNodePort): %v; trying again until it can%s", name, err, note)
		}
	}
	p.missing[port] = m
}

// again receives when the next missing port is due.
func (p *ports) again() <-chan time.Time {
	var next time.Time
	for _, m := range p.missing {
		if next.IsZero() || m.again.Before(next) {
			next = m.again
		}
	}
	if next.IsZero() {
		return nil
	}
	return time.After(time.Until(next))
}

// serve answers at an open port, until the server is closed.
func (p *ports) serve(port uint16, l net.Listener) *http.Server {
	server := &http.Server{Handler: p.answer(port), ReadTimeout: clientMay, WriteTimeout: clientMay, MaxHeaderBytes: 8 << 10}
	server.SetKeepAlivesEnabled(false)
	p.serving.Go(func() { _ = server.Serve(p.clients.Beside(l)) }) // which fails only when it is closed
	return server
}

// close closes all ports, and waits for their servers to end.
func (p *ports) close() {
	for _, server := range p.open {
		server.Close()
	}
	p.serving.Wait()
}
