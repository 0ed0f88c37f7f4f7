package admit

import (
	"net/netip"
	"slices"
	"time"
)

// A Hold is the interest of a UDP session in one address of a name. The zero Hold is one of no name. The session's own goroutines share it
// as they share the session.
type Hold struct {
	resolver *Resolver
	answer   *hostAnswer
	addr     netip.Addr
	changes  uint64 // that it has seen
	moved    bool
}

// Hold has a name looked up again whenever its answer has come to the end of its lifetime, until Release. Without a name it returns the
// zero Hold.
func (r *Resolver) Hold(name string, addr netip.Addr) Hold {
	if name == "" {
		return Hold{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	a := r.answerLocked(name)
	if a.holds++; a.holds == 1 {
		r.scheduleLocked(name, a)
	}
	return Hold{resolver: r, answer: a, addr: addr.Unmap()}
}

// Moved reports whether the name has an answer without the address, or does not exist any more. It takes a lock only after the answer
// has changed. While no nameserver answers, names stay as they were.
func (h *Hold) Moved() bool {
	if h.answer == nil {
		return false
	}
	if h.changes != h.answer.changes.Load() {
		h.resolver.mu.Lock()
		defer h.resolver.mu.Unlock()
		h.changes, h.moved = h.answer.changes.Load(), !slices.Contains(h.answer.addrs, h.addr)
	}
	return h.moved
}

// Release ends the interest. It is safe twice.
func (h *Hold) Release() {
	a := h.answer
	if a == nil {
		return
	}
	h.answer = nil
	h.resolver.mu.Lock()
	defer h.resolver.mu.Unlock()
	if a.holds--; a.holds == 0 {
		a.stopLocked()
	}
}

// scheduleLocked has a name that sessions hold looked up again when its answer comes to its end; after a failure, when that would keep a
// good answer from being used.
func (r *Resolver) scheduleLocked(name string, a *hostAnswer) {
	if a.holds == 0 || a.ended != nil || r.closed {
		return
	}
	a.stopLocked()
	now := time.Now()
	due := max(a.received.Add(a.lifetime).Sub(now), 0)
	if a.err != nil {
		due = max(due, r.Floor)
	}
	a.refresh = time.AfterFunc(due, func() { r.renew(name, a) })
}

// stopLocked ends what scheduleLocked has begun.
func (a *hostAnswer) stopLocked() {
	if a.refresh != nil {
		a.refresh.Stop()
		a.refresh = nil
	}
}

// renew looks a name up again that sessions hold. Only so many of these look-ups run at a time: nameservers that are silent leave the
// others to clients.
func (r *Resolver) renew(name string, a *hostAnswer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case a.holds == 0, r.closed, a.ended != nil: // whose end schedules the next
		return
	case r.refreshing == maxRefreshes:
		a.refresh = time.AfterFunc(unresolvedFor, func() { r.renew(name, a) })
		return
	}
	r.refreshing++
	a.renews = true
	r.lookUpLocked(name, a)
}
