package traffic

import (
	"net/netip"
	"sync"
)

// Clients counts what each client address has of one port of one service, where that is limited. An address is counted for as long as it has
// something, so there are as many as connections and sessions at most. The zero value is ready. Any goroutine may call its methods.
type Clients struct {
	mu sync.Mutex
	of map[netip.Addr]int // nil while nobody is counted
}

// Join counts one more of a client, and reports whether it may have it: most at a time.
func (c *Clients) Join(client netip.Addr, most int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[client] >= most {
		return false
	}
	if c.of == nil {
		c.of = make(map[netip.Addr]int)
	}
	c.of[client]++
	return true
}

// Leave counts one less.
func (c *Clients) Leave(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of[client]--; c.of[client] > 0 {
		return
	}
	if delete(c.of, client); len(c.of) == 0 {
		c.of = nil // a map does not shrink
	}
}
