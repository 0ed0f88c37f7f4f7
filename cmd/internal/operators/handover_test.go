//go:build unix

package operators

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

// TestNobodyIsRefusedWhileAnAddressIsHandedOver: each client is answered, by the old server or by the new one.
func TestNobodyIsRefusedWhileAnAddressIsHandedOver(t *testing.T) {
	cfg := Config{Healthz: netip.AddrPortFrom(proxytest.Loopback, proxytest.FreePort(t)), Metrics: netip.AddrPortFrom(proxytest.Loopback, proxytest.FreePort(t))}
	begin := func(s *Server) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx, well()) }()
		stop = sync.OnceFunc(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		t.Cleanup(stop)
		return stop
	}
	old, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	stop := begin(old)

	var clients sync.WaitGroup
	leave := make(chan struct{})
	for range 4 {
		clients.Go(func() {
			client := http.Client{Timeout: proxytest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
			for {
				select {
				case <-leave:
					return
				default:
				}
				response, err := client.Get("http://" + cfg.Healthz.String() + "/livez")
				if err != nil {
					t.Error(err)
					return
				}
				response.Body.Close()
			}
		})
	}
	for range 5 {
		next, err := Listen(cfg) // another process has the ports
		if err != nil {
			t.Fatal(err)
		}
		handed, release, err := old.Duplicate()
		if err != nil {
			t.Fatal(err)
		}
		if len(handed) != 2 {
			t.Fatalf("%d addresses are handed over; want 2", len(handed))
		}
		for _, h := range handed {
			copied, err := unix.FcntlInt(uintptr(h.Descriptor), unix.F_DUPFD_CLOEXEC, 0) // as the receiver of a message has it
			if err != nil {
				t.Fatal(err)
			}
			if err := next.Adopt(Handed{h.Addr, copied}); err != nil {
				t.Fatal(err)
			}
		}
		release()
		stop()
		old, stop = next, begin(next)
		proxytest.Eventually(t, func() bool { return proxytest.Listens(cfg.Metrics) }, "the new server answers")
	}
	close(leave)
	clients.Wait()
}

// TestAnAddressThatNobodyAskedForIsNotAdopted, nor one that is open already.
func TestAnAddressThatNobodyAskedForIsNotAdopted(t *testing.T) {
	old, err := Listen(Config{Healthz: anyPort})
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	handed, release, err := old.Duplicate()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	next, err := Listen(Config{Metrics: anyPort})
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	addr := next.Addrs()[0]
	copied, err := unix.FcntlInt(uintptr(handed[0].Descriptor), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.Adopt(Handed{addr.String(), copied}); err != nil || next.Addrs()[0] != addr {
		t.Errorf("%v, and it is at %v", err, next.Addrs()[0])
	}
	if _, err := unix.FcntlInt(uintptr(copied), unix.F_GETFD, 0); err == nil {
		t.Error("the descriptor is still open")
	}
}
