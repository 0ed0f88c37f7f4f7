package epoll

import (
	"testing"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A socket may take a header in pieces, and together with what the client said.
func TestBytesOfAHeaderDoNotCountAsTheClients(t *testing.T) {
	const header, said = 28, 100
	for first := 1; first < header+said; first++ {
		tally := traffic.NewTally(registry.PortKey{}, registry.TCP)
		c := &conn{record: tcp.Connection{Claim: &engine.Claim{Tally: tally}}}
		c.backend.header = header
		r := new(relays)
		r.count(c, &c.backend, first)
		if left := max(0, header-first); int(c.backend.header) != left {
			t.Fatalf("after %d bytes, %d of the header are left; want %d", first, c.backend.header, left)
		}
		r.count(c, &c.backend, header+said-first)
		if c.backend.sent != said || tally.Sent.Load() != said {
			t.Fatalf("in pieces of %d and the rest: %d and %d bytes were sent; want %d", first, c.backend.sent, tally.Sent.Load(), said)
		}
	}
}
