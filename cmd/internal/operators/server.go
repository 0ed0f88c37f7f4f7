package operators

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/cmd/internal/crowd"
	"kubeproxy/internal/lograte"
	"kubeproxy/proxy"
)

// A Config says where operators are answered. An address that is not valid is off.
type Config struct {
	Healthz     netip.AddrPort
	Metrics     netip.AddrPort
	MetricsOnly netip.AddrPort // for /metrics alone; another address than the two above
	Profiling   bool           // answer /debug/pprof/ on the metrics address, too
}

// A Server listens for operators. Make it with [Listen].
type Server struct {
	cfg     Config
	sockets []*socket
}

// A socket is one address.
type socket struct {
	addr     netip.AddrPort
	flag     string
	answers  scope
	opening  sync.Mutex   // held to change listener once Run has been called, and to read it elsewhere than in Run
	listener net.Listener // nil while another program has the port
}

// What a request may take. The answer to a profile takes as long as the profile, 30 s if nothing else is asked for.
const (
	headerTimeout = 5 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = 2 * time.Minute
	lastAnswers   = time.Second // at the end
	maxHeader     = 8 << 10
)

// Listen opens the addresses. One whose port another program has is opened by Run, as soon as it is free: that
// operators cannot be answered is no reason not to serve clients. Any other error names the flag.
func Listen(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg}
	atHealthz := health
	if cfg.Healthz == cfg.Metrics {
		atHealthz = everything
	}
	err := s.listen("-healthz_bind_address", cfg.Healthz, atHealthz)
	if err == nil && cfg.Metrics != cfg.Healthz {
		err = s.listen("-metrics_bind_address", cfg.Metrics, everything)
	}
	if err == nil {
		err = s.listen("-metrics_only_bind_address", cfg.MetricsOnly, metricsOnly)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) listen(flag string, addr netip.AddrPort, answers scope) error {
	if !addr.IsValid() {
		return nil
	}
	k := &socket{addr: addr, flag: flag, answers: answers}
	if err := k.open(); err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w", flag, err)
	}
	s.sockets = append(s.sockets, k)
	return nil
}

func (k *socket) open() error {
	l, err := crowd.Listen("tcp", k.addr.String())
	if err != nil {
		return err
	}
	k.opening.Lock()
	k.listener = l
	k.opening.Unlock()
	if k.addr.Port() == 0 { // which is never another program's, so this is before Run
		k.addr = l.Addr().(*net.TCPAddr).AddrPort()
	}
	return nil
}

// How long to wait before a port that another program has is tried again.
const (
	firstRetry = 250 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// openAtLast opens the address, however long that takes, and reports whether it did before ctx ended.
func (k *socket) openAtLast(ctx context.Context) bool {
	var failures lograte.Limiter[struct{}]
	for pause := firstRetry; k.listener == nil; pause = min(2*pause, lastRetry) {
		if err := k.open(); err == nil {
			glog.Infof("%s: listening on %s at last", k.flag, k.addr)
		} else if note, ok := failures.Allow(struct{}{}); ok {
			glog.Errorf("%s: %v; clients are served, operators are not answered there; trying again until it can%s", k.flag, err, note)
		}
		if k.listener == nil {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return false
			}
		}
	}
	return true
}

// Addrs gives the addresses, in the order of healthz, metrics and metrics alone, those included that another program has.
func (s *Server) Addrs() []netip.AddrPort {
	var all []netip.AddrPort
	for _, k := range s.sockets {
		all = append(all, k.addr)
	}
	return all
}

// Ports gives the ports of the addresses, which services cannot have.
func (s *Server) Ports() []uint16 {
	var all []uint16
	for _, addr := range s.Addrs() {
		all = append(all, addr.Port())
	}
	return all
}

// roomFor says how many clients each listener may have: so many that all together leave most of the
// descriptors that the proxy keeps in reserve to others.
func roomFor(reserve int) int { return max(reserve/8, 2) }

// Close closes what Listen opened. It is for those who do not call Run.
func (s *Server) Close() {
	for _, k := range s.sockets {
		if k.listener != nil {
			k.listener.Close()
		}
	}
}

// Run answers until ctx ends. Then it lets the answers that are being given be finished for a moment, and
// when it returns nothing of it is running. An error is that of a socket that cannot go on.
func (s *Server) Run(ctx context.Context, a Answers) error {
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, len(s.sockets))
	limit, clients, _ := proxy.DescriptorRoom()
	unread := new(unread)
	for _, k := range s.sockets {
		room := roomFor(limit - clients)
		pages := a.pages(ctx, k.answers, s.cfg.Profiling, room, newRenderer(unread))
		running.Go(func() {
			if !k.openAtLast(ctx) {
				return
			}
			glog.Infof("answering operators at http://%s: %s", k.addr, pages)
			if err := k.serve(ctx, pages, room); err != nil {
				failed <- err
				stop()
			}
		})
	}
	<-ctx.Done()
	running.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return nil
	}
}

// serve answers at an open address until ctx ends.
func (k *socket) serve(ctx context.Context, pages pages, room int) error {
	clients := crowd.New(k.listener, room)
	server := &http.Server{
		Handler:                      clients.Handler(pages),
		ReadHeaderTimeout:            headerTimeout,
		ReadTimeout:                  headerTimeout, // a form is short
		WriteTimeout:                 answerTimeout,
		IdleTimeout:                  idleTimeout,
		MaxHeaderBytes:               maxHeader,
		ConnContext:                  clients.Remember,
		ErrorLog:                     quietLog(),
		DisableGeneralOptionsHandler: true,
	}
	stop := context.AfterFunc(ctx, func() { k.listener.Close() })
	err := server.Serve(clients)
	if stop() { // ctx has not ended
		return fmt.Errorf("%s: %w", k.flag, err)
	}
	// Every client that was accepted is known by now, and is answered first: Shutdown drops requests that it finds unanswered.
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastAnswers)
	defer cancel()
	server.SetKeepAlivesEnabled(false)
	clients.Leave(last)
	if server.Shutdown(last) != nil {
		server.Close()
	}
	return nil
}
