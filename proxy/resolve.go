package proxy

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"time"

	"kubeproxy/registry"
)

// How long the answer to a host name is used, and how long a name that could not be resolved is
// left alone. v0.4 resolved a name for every connection, inside the accept loop (D36).
const (
	resolvedFor   = 5 * time.Second
	unresolvedFor = time.Second
)

// maxHosts bounds the cache: past it, answers that are out of date are dropped.
const maxHosts = 1024

// A resolver turns endpoints into addresses to dial: it resolves host names, and refuses our own
// listeners and what lies outside the allowed addresses. Looking up a name may take seconds, so it is never called where others wait behind.
type resolver struct {
	own     *ownPorts
	allowed []netip.Prefix // where endpoints may be; none: anywhere
	lookup  func(ctx context.Context, network, host string) ([]netip.Addr, error)

	mu    sync.Mutex // guards the fields below
	hosts map[string]*hostAnswer
}

// A hostAnswer is what is known of one name; its fields are set when ready is closed.
type hostAnswer struct {
	ready   chan struct{}
	addrs   []netip.Addr
	err     error
	expires time.Time
}

func newResolver(own *ownPorts) *resolver {
	return &resolver{
		own:    own,
		lookup: net.DefaultResolver.LookupNetIP,
		hosts:  make(map[string]*hostAnswer),
	}
}

// resolve returns the addresses to try for an endpoint, never none without an error.
func (r *resolver) resolve(ctx context.Context, protocol registry.Protocol, addr registry.Addr) ([]netip.AddrPort, error) {
	ips := []netip.Addr{addr.IP.Addr()}
	if addr.Host != "" {
		var err error
		if ips, err = r.host(ctx, addr.Host); err != nil {
			return nil, err
		}
	}
	var usable []netip.AddrPort
	var refusal error
	for _, ip := range ips {
		to := netip.AddrPortFrom(ip.Unmap(), addr.IP.Port())
		if err := r.refuse(protocol, to); err != nil {
			refusal = err
		} else {
			usable = append(usable, to)
		}
	}
	if len(usable) == 0 {
		return nil, refusal
	}
	return usable, nil
}

// refuse tells why an address is not to be dialled; nil: it may be.
func (r *resolver) refuse(protocol registry.Protocol, to netip.AddrPort) error {
	switch {
	case r.own.contains(protocol, to):
		return errOwnListener
	case len(r.allowed) > 0 && !contains(r.allowed, to.Addr()):
		return errNotAllowed
	}
	return nil
}

// host returns the addresses of a name, from the cache while the answer is fresh. Those who ask for
// one name at the same time share one look-up, which the first of them makes.
func (r *resolver) host(ctx context.Context, name string) ([]netip.Addr, error) {
	for {
		answer, mine := r.answer(name)
		if mine {
			r.ask(ctx, name, answer)
		}
		select {
		case <-answer.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if answer.err != nil && !mine && ctx.Err() == nil && time.Now().After(answer.expires) {
			continue // the one who asked gave up; that says nothing about the name
		}
		return answer.addrs, answer.err
	}
}

// answer returns what is known of a name, or a new answer that the caller has to find.
func (r *resolver) answer(name string) (a *hostAnswer, mine bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if a := r.hosts[name]; a != nil && !a.stale(now) {
		return a, false
	}
	if len(r.hosts) >= maxHosts {
		for host, a := range r.hosts {
			if a.stale(now) {
				delete(r.hosts, host)
			}
		}
	}
	a = &hostAnswer{ready: make(chan struct{})}
	r.hosts[name] = a
	return a, true
}

// stale tells whether the answer is out of date. One still being looked for is not.
func (a *hostAnswer) stale(now time.Time) bool {
	select {
	case <-a.ready:
		return !now.Before(a.expires)
	default:
		return false
	}
}

// ask looks a name up and publishes the answer.
func (r *resolver) ask(ctx context.Context, name string, a *hostAnswer) {
	defer close(a.ready)
	addrs, err := r.lookup(ctx, "ip", name)
	switch {
	case err == nil && len(addrs) > 0:
		a.addrs, a.expires = addrs, time.Now().Add(resolvedFor)
	case ctx.Err() != nil: // our client's time ran out: whoever asks next asks anew
		a.err = fmt.Errorf("resolve %s: %w", registry.Quote(name), ctx.Err())
	default:
		if err == nil {
			err = fmt.Errorf("no addresses")
		}
		a.err, a.expires = fmt.Errorf("resolve %s: %w", registry.Quote(name), err), time.Now().Add(unresolvedFor)
	}
}
