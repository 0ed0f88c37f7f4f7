package witness

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"time"

	"github.com/golang/glog"

	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// How a new primary comes into force for services that await its promotion. A member's record tells of its promotion 0.5 to 1.1 s late, and its
// /primary answers 200 as soon as it has the key. Its /patroni tells the role of that moment.
//
// Nothing is awaited when a service or its primary is seen for the first time: the primary may have been one for long. A REST API that cannot be asked
// changes nothing: the key decides.

const (
	pace    = 50 * time.Millisecond // between two questions, each of which may take a period; varied by up to a half, for other nodes ask too
	slow    = 5 * pace              // after a second
	silent  = 2                     // questions in a row without an answer
	longest = 5 * time.Second       // that a promotion is awaited
)

// Promotions are those that are awaited. They belong to one goroutine, but for ask.
type promotions struct {
	ask  func(ctx context.Context, key string) (role string, err error) // the primary that a key names; no role: it is not known yet who that is
	over chan *promotion                                                // those that are awaited no more
	of   map[string]*promotion                                          // by key
}

// A promotion is awaited of a primary.
type promotion struct {
	key    string
	to     registry.Addr
	holds  map[registry.Name]bool // the services that have no endpoint until it is over: those whose primary has changed
	began  time.Time
	cancel context.CancelFunc
	why    string // it is over
}

// change notes that the primary of a service has changed, which a key names, and begins or ends to await its promotion.
func (a *promotions) change(ctx context.Context, key string, name registry.Name, before, now *registry.Endpoints) {
	p, to := a.of[key], primary(now)
	switch {
	case to == registry.Addr{}:
		if p != nil {
			if delete(p.holds, name); len(p.holds) == 0 {
				p.cancel()
				delete(a.of, key)
			}
		}
		return
	case before == nil || to == primary(before):
		return
	case p != nil && p.to == to:
		p.holds[name] = true // another service of the key has begun it
		return
	}
	holds := map[registry.Name]bool{name: true}
	if p != nil {
		p.cancel()
		maps.Copy(holds, p.holds)
	}
	limited, cancel := context.WithTimeout(ctx, longest)
	p = &promotion{key: key, to: to, holds: holds, began: time.Now(), cancel: cancel}
	a.of[key] = p
	glog.Infof("the primary that key %s names is in force once it says that it is promoted, or %v later", registry.Quote(key), longest)
	go func() {
		p.why = a.askUntilPromoted(limited, p)
		cancel()
		select {
		case a.over <- p:
		case <-ctx.Done():
		}
	}()
}

// primary is the one endpoint of a service of a primary, or no address.
func primary(of *registry.Endpoints) (a registry.Addr) {
	if of != nil && len(of.ByPort) > 0 {
		for a := range of.ByPort[0].Addrs.All() {
			return a
		}
	}
	return a
}

// askUntilPromoted asks the REST API of a primary until it says that the primary is promoted, or says nothing. It returns why it asks no more.
func (a *promotions) askUntilPromoted(ctx context.Context, p *promotion) string {
	for unanswered := 0; ; {
		role, err := a.ask(ctx, p.key)
		switch {
		case ctx.Err() != nil:
			return "it is not promoted yet"
		case errors.Is(err, context.DeadlineExceeded) && unanswered+1 < silent:
			unanswered++
		case err != nil:
			return "it does not say what it is: " + registry.Quote(err.Error())
		case patroni.IsPrimary(role):
			return "it is promoted"
		default:
			unanswered = 0
		}
		rest := pace
		if time.Since(p.began) > time.Second {
			rest = slow
		}
		select {
		case <-time.After(rest/2 + rand.N(rest)):
		case <-ctx.Done():
		}
	}
}

// hold reports whether a service has no endpoint, for the promotion of its primary is awaited.
func (a *promotions) hold(key string, name registry.Name) bool {
	p := a.of[key]
	return p != nil && p.holds[name]
}

// end notes that a promotion is awaited no more. It reports whether it was the newest of its key.
func (a *promotions) end(p *promotion) bool {
	if a.of[p.key] != p {
		return false
	}
	delete(a.of, p.key)
	glog.Infof("the primary that key %s names is in force after %v: %s", registry.Quote(p.key), time.Since(p.began).Round(time.Millisecond), p.why)
	return true
}
