package operators

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy"
)

// A Config says where operators are answered. An address that is not valid is off.
type Config struct {
	Healthz   netip.AddrPort
	Metrics   netip.AddrPort
	Profiling bool // answer /debug/pprof/ on the metrics address, too
}

// A Server listens for operators. Make it with [Listen].
type Server struct {
	cfg     Config
	sockets []socket
}

// A socket is one open address.
type socket struct {
	net.Listener
	flag string
	all  bool // everything is answered there, and not only how the node is
}

// What a request may take. The answer to a profile takes as long as the profile, 30 s if nothing else is asked for.
const (
	headerTimeout = 5 * time.Second
	answerTimeout = time.Minute
	idleTimeout   = 2 * time.Minute
	maxHeader     = 8 << 10
)

// Listen opens the addresses. Its errors name the flag.
func Listen(cfg Config) (*Server, error) {
	s := &Server{cfg: cfg}
	err := s.listen("-healthz_bind_address", cfg.Healthz, cfg.Healthz == cfg.Metrics)
	if err == nil && cfg.Metrics != cfg.Healthz {
		err = s.listen("-metrics_bind_address", cfg.Metrics, true)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Server) listen(flag string, addr netip.AddrPort, all bool) error {
	if !addr.IsValid() {
		return nil
	}
	l, err := net.Listen("tcp", addr.String())
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	s.sockets = append(s.sockets, socket{l, flag, all})
	return nil
}

// Addrs gives the addresses that are open, in the order of healthz and metrics.
func (s *Server) Addrs() []netip.AddrPort {
	var all []netip.AddrPort
	for _, k := range s.sockets {
		all = append(all, k.Addr().(*net.TCPAddr).AddrPort())
	}
	return all
}

// Ports gives the ports that are open, which services cannot have.
func (s *Server) Ports() []uint16 {
	var all []uint16
	for _, addr := range s.Addrs() {
		all = append(all, addr.Port())
	}
	return all
}

// Close closes what Listen opened. It is for those who do not call Run.
func (s *Server) Close() {
	for _, k := range s.sockets {
		k.Close()
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
	for _, k := range s.sockets {
		pages := a.pages(k, s.cfg.Profiling)
		glog.Infof("answering operators at http://%s: %s", k.Addr(), pages)
		crowd := newCrowd(k.Listener, roomFor(limit-clients))
		server := &http.Server{
			Handler:                      crowd.handler(pages),
			ReadHeaderTimeout:            headerTimeout,
			ReadTimeout:                  headerTimeout, // none of our requests has a body
			WriteTimeout:                 answerTimeout,
			IdleTimeout:                  idleTimeout,
			MaxHeaderBytes:               maxHeader,
			ConnContext:                  crowd.remember,
			ErrorLog:                     quietLog(),
			DisableGeneralOptionsHandler: true,
		}
		running.Go(func() {
			if err := server.Serve(crowd); !errors.Is(err, http.ErrServerClosed) {
				failed <- fmt.Errorf("%s: %w", k.flag, err)
				stop()
			}
		})
		running.Go(func() {
			<-ctx.Done()
			last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			if server.Shutdown(last) != nil {
				server.Close()
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
