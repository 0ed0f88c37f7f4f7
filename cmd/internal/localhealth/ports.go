package localhealth

import (
	"bytes"
	"context"
	"errors"
	"log"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/crowd"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// When to try again to open a port.
const (
	retry      = time.Second
	quickRetry = 50 * time.Millisecond // while the port is in use, most likely by a predecessor that ends
	quickFor   = 2 * time.Second       // after that another program has it
)

// The ports are what Run has of each wanted port: it is open or missing.
type ports struct {
	*Server
	errorLog *log.Logger
	open     map[uint16]*http.Server
	missing  map[uint16]missing
	failures chan failure
	serving  sync.WaitGroup
}

// A missing port could not be opened.
type missing struct {
	since time.Time
	again time.Time // when to try next
}

// A failure is that of a listener which accepts no more. Its server has closed it.
type failure struct {
	port   uint16
	server *http.Server
	err    error
}

// settle closes the ports that are not wanted, and opens those that are, unless it is too early to try again.
func (p *ports) settle(ctx context.Context, wanted map[uint16]registry.Name) {
	for port, server := range p.open {
		if _, ok := wanted[port]; !ok {
			server.Close()
			delete(p.open, port)
		}
	}
	maps.DeleteFunc(p.missing, func(port uint16, _ missing) bool { _, ok := wanted[port]; return !ok })
	for port, name := range wanted {
		if p.open[port] != nil || time.Now().Before(p.missing[port].again) {
			continue
		}
		if l, err := p.listen("tcp", p.address(port)); err != nil {
			p.missed(port, name, err)
		} else {
			delete(p.missing, port)
			p.open[port] = p.serve(ctx, port, l)
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

// serve answers at an open port, until the server is closed or its listener fails.
func (p *ports) serve(ctx context.Context, port uint16, l net.Listener) *http.Server {
	server := &http.Server{Handler: p.answer(port), ReadTimeout: clientMay, WriteTimeout: clientMay, MaxHeaderBytes: 8 << 10, ErrorLog: p.errorLog}
	server.SetKeepAlivesEnabled(false)
	p.serving.Go(func() {
		err := server.Serve(listener{l, p.clients})
		if errors.Is(err, http.ErrServerClosed) {
			return
		}
		select {
		case p.failures <- failure{port, server, err}:
		case <-ctx.Done():
		}
	})
	return server
}

// failed has a port opened again after a while.
func (p *ports) failed(f failure) {
	if p.open[f.port] != f.server {
		return // it was closed meanwhile
	}
	if note, ok := p.trouble.Allow(f.port); ok {
		glog.Errorf("port %d, for load balancers (healthCheckNodePort): %v; opening it again in %v%s", f.port, f.err, retry, note)
	}
	f.server.Close() // its clients, too
	delete(p.open, f.port)
	now := time.Now()
	p.missing[f.port] = missing{since: now, again: now.Add(retry)}
}

// close closes all ports, and waits until nobody accepts from them.
func (p *ports) close() {
	for _, server := range p.open {
		server.Close()
	}
	p.serving.Wait()
}

// A listener is that of one port. Its clients are some of the clients of all ports.
type listener struct {
	net.Listener
	clients *crowd.Listener
}

// Accept implements [net.Listener]. After an error that is temporary, such as a want of descriptors, package http accepts again. After any other,
// such as a want of memory, it gives the listener up: see ports.failed.
func (l listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.clients.Admit(conn); c != nil {
			return c, nil
		}
		conn.Close()
	}
}

// Lines are those of package http: that a client cannot be accepted, at up to a thousand ports, or that a handler has panicked.
type lines struct{ limit lograte.Limiter[struct{}] }

// Write implements [io.Writer].
func (l *lines) Write(line []byte) (int, error) {
	if note, ok := l.limit.Allow(struct{}{}); ok {
		glog.Errorf("ports for load balancers (healthCheckNodePort): %s%s", bytes.TrimSpace(line), note)
	}
	return len(line), nil
}
