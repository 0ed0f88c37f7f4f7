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

// How a new primary comes into force for services that await its promotion. Patroni's records of members say it 0.5 to 1.1 s late, and its /primary says
// 200 as soon as it has the key. What /patroni says of the role is of that moment.
//
// Nothing is awaited when a service or its primary is seen for the first time: the primary may have been one for long. A REST API that cannot be asked
// changes nothing: the key decides.

const (
	pace    = 50 * time.Millisecond // between two questions, each of which may take a period; varied by up to a half, for other nodes ask too
	slow    = 5 * pace              // after a second
	silent  = 2                     // questions in a row without an answer
	longest = 5 * time.Second       // that a promotion is awaited
)

// A promotion is awaited of a primary.
type promotion struct {
	key    string
	to     registry.Addr
	holds  map[registry.Name]bool // the services that have no endpoint until it is over: those whose primary has changed
	began  time.Time
	cancel context.CancelFunc
	over   string // why it is awaited no more
}

// A state is what the REST API says of a member.
type state struct{ Role string }

// awaitPromotion begins or ends to await the promotion of a primary, which a service has from now on. same: the service asked the same before.
func (s *Source) awaitPromotion(ctx context.Context, name registry.Name, same bool, before, now *registry.Endpoints) {
	of := s.services[name]
	if !of.unpromoted || !same {
		return
	}
	p, to := s.promotions[of.key], primary(now)
	switch {
	case to == registry.Addr{}:
		if p != nil {
			if delete(p.holds, name); len(p.holds) == 0 {
				p.cancel()
				delete(s.promotions, of.key)
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
	p = &promotion{key: of.key, to: to, holds: holds, began: time.Now(), cancel: cancel}
	s.promotions[of.key] = p
	glog.Infof("the primary that key %s names is in force once it says that it is promoted, or %v later", registry.Quote(p.key), longest)
	go func() {
		p.over = s.askUntilPromoted(limited, p)
		cancel()
		select {
		case s.promoted <- p:
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
func (s *Source) askUntilPromoted(ctx context.Context, p *promotion) string {
	for unanswered := 0; ; {
		role, err := s.askRole(ctx, p)
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

// askRole asks once. It returns no role as long as the source beneath has not said whom to ask: its status may follow its update.
func (s *Source) askRole(ctx context.Context, p *promotion) (role string, err error) {
	st := s.Source.Status()
	if st.Revision != s.passed.Load() {
		return "", nil
	}
	for _, e := range st.Elections {
		if e.Key != p.key || e.API == "" {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, period)
		defer cancel()
		var is state
		if err := s.get(limited, e.API+"/patroni", &is); err != nil {
			return "", err
		}
		if is.Role == "" {
			return "", errors.New("no role")
		}
		return is.Role, nil
	}
	return "", errors.New("its record has no usable api_url")
}

// endPromotion has a primary come into force.
func (s *Source) endPromotion(ctx context.Context, p *promotion) {
	if s.promotions[p.key] != p {
		return // the key has changed since
	}
	delete(s.promotions, p.key)
	glog.Infof("the primary that key %s names is in force after %v: %s", registry.Quote(p.key), time.Since(p.began).Round(time.Millisecond), p.over)
	s.change(ctx, p.key)
}
