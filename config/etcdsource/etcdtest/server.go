package etcdtest

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"

	"kubeproxy/internal/process"
)

// An Option edits the configuration of an embedded etcd before it starts.
type Option func(*embed.Config)

// WithTLS has the server show this certificate to clients and, with a CA file, demand one of theirs.
func WithTLS(certFile, keyFile, clientCAFile string) Option {
	return func(cfg *embed.Config) {
		cfg.ClientTLSInfo.CertFile, cfg.ClientTLSInfo.KeyFile = certFile, keyFile
		cfg.ClientTLSInfo.TrustedCAFile = clientCAFile
		cfg.ClientTLSInfo.ClientCertAuth = clientCAFile != ""
		for i := range cfg.ListenClientUrls {
			cfg.ListenClientUrls[i].Scheme = "https"
			cfg.AdvertiseClientUrls[i].Scheme = "https"
		}
	}
}

// A Server is an etcd inside the test's process.
type Server struct {
	cfg  *embed.Config
	mu   sync.Mutex // guards etcd
	etcd *embed.Etcd
}

// StartServer starts an etcd with an empty data directory on free ports of 127.0.0.1, and returns
// when it is ready. It is closed when the test ends.
func StartServer(t testing.TB, opts ...Option) *Server {
	t.Helper()
	s, err := Open(t.TempDir(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Open is StartServer for those who are no test, such as an example. The caller closes it.
func Open(dir string, opts ...Option) (*Server, error) {
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true
	for _, urls := range []*[]url.URL{&cfg.ListenClientUrls, &cfg.ListenPeerUrls} {
		port, err := process.FreePorts(lowPort, highPort, 1)
		if err != nil {
			return nil, err
		}
		*urls = []url.URL{{Scheme: "http", Host: "127.0.0.1:" + strconv.Itoa(int(port))}}
	}
	cfg.AdvertiseClientUrls = slices.Clone(cfg.ListenClientUrls)
	cfg.AdvertisePeerUrls = slices.Clone(cfg.ListenPeerUrls)
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	for _, opt := range opts {
		opt(cfg)
	}
	s := &Server{cfg: cfg}
	return s, s.start()
}

// URL is the address for clients.
func (s *Server) URL() string { return s.cfg.ListenClientUrls[0].String() }

// Addr is the host and port of [Server.URL].
func (s *Server) Addr() string { return s.cfg.ListenClientUrls[0].Host }

// Client returns a client that is closed when the test ends. The edits are made to its
// configuration first.
func (s *Server) Client(t testing.TB, edits ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	return newClient(t, s.URL(), edits...)
}

// Start starts a closed server again, on the same ports with the same data.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.etcd != nil {
		return errors.New("etcd is already running")
	}
	etcd, err := embed.StartEtcd(s.cfg)
	if err != nil {
		return fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		s.etcd = etcd
		return nil
	case err = <-etcd.Err():
	case <-time.After(process.EtcdStartTimeout):
		err = fmt.Errorf("not ready after %v", process.EtcdStartTimeout)
	}
	etcd.Close()
	return fmt.Errorf("start etcd: %w", err)
}

// Close stops the server and waits for it. It may be called again.
func (s *Server) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.etcd != nil {
		s.etcd.Close()
		s.etcd = nil
	}
}
