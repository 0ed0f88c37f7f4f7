// Package etcdv2test serves an etcd 2 in memory to tests.
package etcdv2test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"kubeproxy/internal/etcdv2"
)

// Window is how many events etcd 2 remembers, of all keys together.
const Window = etcdv2.Window

// A Server is an etcd 2 at an address. Any goroutine may use it.
type Server struct {
	*etcdv2.Server
	URL    string // of the API
	server *httptest.Server

	nameless atomic.Bool
}

// Start starts an etcd 2 that is empty, and ends it with the test.
func Start(t testing.TB) *Server { return start(t, nil) }

// StartTLS is Start of one that speaks TLS.
func StartTLS(t testing.TB, cfg *tls.Config) *Server { return start(t, cfg) }

func start(t testing.TB, cfg *tls.Config) *Server {
	t.Helper()
	s := &Server{Server: etcdv2.New()}
	s.server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.nameless.Load() {
			w = withoutCluster{w}
		}
		s.ServeHTTP(w, r)
	}))
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // handshakes that fail are what some tests want
	if s.server.TLS = cfg; cfg != nil {
		s.server.StartTLS()
	} else {
		s.server.Start()
	}
	s.URL = s.server.URL
	t.Cleanup(func() {
		s.Resume()
		s.server.CloseClientConnections()
		s.server.Close()
	})
	return s
}

// Nameless has the answers name no cluster from now on, as etcd 0.4 does.
func (s *Server) Nameless() { s.nameless.Store(true) }

// Named has the answers name the cluster, as etcd 2 does: it does from the start.
func (s *Server) Named() { s.nameless.Store(false) }

// withoutCluster sends an answer that does not name the cluster.
type withoutCluster struct{ http.ResponseWriter }

func (w withoutCluster) WriteHeader(status int) {
	w.Header().Del("X-Etcd-Cluster-Id")
	w.ResponseWriter.WriteHeader(status)
}

func (w withoutCluster) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Cut ends all connections.
func (s *Server) Cut() { s.server.CloseClientConnections() }

// Addr is the host and port of URL.
func (s *Server) Addr() net.Addr { return s.server.Listener.Addr() }
