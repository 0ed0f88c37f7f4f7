package admit

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	"kubeproxy/registry"
)

// TestWhoCannotWaitDoesNotWaitForTheLock: thousands of look-ups that end at once are in line for it, and an event loop has other clients.
func TestWhoCannotWaitDoesNotWaitForTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newTestResolver(&nameServer{addrs: []netip.Addr{netip.MustParseAddr("10.0.0.1")}})
		defer r.Close()
		web, want := hostAddr("web", 80), []netip.AddrPort{netip.MustParseAddrPort("10.0.0.1:80")}
		if got, err := r.Resolve(t.Context(), registry.TCP, web); err != nil || !slices.Equal(got, want) {
			t.Fatalf("got %v, %v; want %v", got, err, want)
		}
		r.mu.Lock()
		if _, _, ok := r.Recall(registry.TCP, web); ok {
			t.Error("it was known without the lock")
		}
		if _, _, ok := r.Recall(registry.TCP, registry.Addr{IP: want[0]}); !ok {
			t.Error("an address takes the lock")
		}
		r.mu.Unlock()
		if got, err, ok := r.Recall(registry.TCP, web); !ok || err != nil || !slices.Equal(got, want) {
			t.Errorf("got %v, %v, %t; want %v", got, err, ok, want)
		}
	})
}
