package tcp

import (
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A followed port is one whose owner changes while a client of it looks for an endpoint.
type followed struct {
	*course
	claim   *engine.Claim // the last one of its service
	owner   atomic.Pointer[engine.Claim]
	client  Connection
	endings []traffic.Ending
}

// follow begins the race of a client that has just come to a service with these endpoints and terms.
func follow(t *testing.T, endpoints string, terms registry.Terms) *followed {
	t.Helper()
	f := &followed{course: begin(t, endpoints, engine.Config{}, 0)}
	base := new(engine.Base)
	base.Init(engine.Config{Ended: func(e traffic.Ending) { f.endings = append(f.endings, e) }}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	t.Cleanup(base.Resolver.Close)
	f.claim = claimOf("web", f.all, terms)
	f.owner.Store(f.claim)
	client, ok := Admit(base, f.claim, 80, netip.MustParseAddrPort("192.0.2.1:1"))
	if !ok {
		t.Fatal("the client is refused")
	}
	f.client = client
	f.race.BeginFor(&f.client, &f.owner, &f.config, f.start)
	return f
}

func claimOf(service string, r *rotation.Rotation, terms registry.Terms) *engine.Claim {
	key := registry.PortKey{Name: registry.Name{Name: service}}
	return &engine.Claim{Key: key, Rotation: r, Tally: traffic.NewTally(key, registry.TCP), Lifetime: new(removal.Lifetime), Terms: &terms}
}

// renew gives the service other terms, as the Proxier does.
func (f *followed) renew(terms registry.Terms) *engine.Claim {
	c := *f.claim
	c.Terms = &terms
	f.claim = &c
	f.owner.Store(f.claim)
	f.all.TellNews()
	return f.claim
}

// follows has the client follow a claim, once its race has given up.
func (f *followed) follows(want *engine.Claim) {
	f.t.Helper()
	if f.news != nil && f.news.Err() == nil {
		f.t.Error("the client is not told")
	}
	f.says("gives up")
	if got := f.race.NewOwner(); got != want {
		f.t.Fatalf("the client is to follow %+v; want %+v", got, want)
	}
	if !f.race.Follow(want, monotonic.Now()) || f.client.Claim != want {
		f.t.Fatal("the client does not follow the owner of its port")
	}
}

// says checks which steps are due, and returns when the next one is.
func (f *followed) says(want ...string) (due time.Duration) {
	f.t.Helper()
	said, due := f.steps()
	if !slices.Equal(said, want) {
		f.t.Fatalf("the race says %q; want %q", said, want)
	}
	return due
}

// isTurnedAway ends the client, whose race has given up for good, and checks that it was counted once.
func (f *followed) isTurnedAway(want traffic.Reason, attempts int) {
	f.t.Helper()
	if owner := f.race.NewOwner(); owner != nil {
		f.t.Errorf("the client is to follow %+v; want that it is turned away", owner)
	}
	f.client.TurnAway(f.race.WhyNone(), f.race.Failures())
	f.isCountedOnce(want, attempts)
}

func (f *followed) isCountedOnce(want traffic.Reason, attempts int) {
	f.t.Helper()
	totals := f.claim.Tally.Totals()
	if totals.Begun != 1 || totals.Active != 0 || totals.Ended[want] != 1 || totals.DialFailures != uint64(attempts) {
		f.t.Errorf("counted: %d begun, %d active, %d ended with %s, %d failures; want 1, 0, 1, %d",
			totals.Begun, totals.Active, totals.Ended[want], want, totals.DialFailures, attempts)
	}
	if len(f.endings) != 1 || f.endings[0].Attempts != attempts || strings.Count(f.endings[0].Tried, "refused") != attempts {
		f.t.Errorf("told: %+v; want one ending with %d attempts", f.endings, attempts)
	}
	f.leavesNothing()
}

func waits(wait time.Duration) registry.Terms {
	return registry.Terms{Timeouts: registry.Timeouts{Wait: wait}}
}

func elects(key string, wait time.Duration) registry.Terms {
	terms := waits(wait)
	terms.HolderKey = key
	return terms
}

func TestTheTimeOfAClientThatWaitsIsThatOfTheTermsAndCountsFromItsArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "", waits(10*time.Second))
		f.says()
		for _, wait := range []time.Duration{3 * time.Second, 30 * time.Second, 5 * time.Second} {
			time.Sleep(time.Second)
			f.follows(f.renew(waits(wait)))
			if due := f.says(); due != f.start+wait {
				t.Errorf("the client waits until %v after it came; want %v", due-f.start, wait)
			}
		}
		f.follows(f.renew(waits(time.Second))) // which is over
		f.says("gives up")
		f.isTurnedAway(traffic.NoEndpoints, 0)
	})
}

func TestAClientThatFollowsARenewedClaimIsCountedOnceWithAllItsFailures(t *testing.T) {
	for _, renewed := range []registry.Terms{elects("/other", 2*time.Second), waits(2 * time.Second)} {
		synctest.Test(t, func(t *testing.T) {
			f := follow(t, "1", elects("/leader", 10*time.Second))
			f.says("dial 1")
			f.happens("1 refuses")
			f.says()
			f.follows(f.renew(renewed))
			due := f.says() // 1 is not tried again before it may be well
			if due != f.start+time.Second {
				t.Errorf("the client looks again after %v; want 1s, when the endpoint is due back", due-f.start)
			}
			time.Sleep(due - monotonic.Now())
			delete(f.dialled, 1)
			f.says("dial 1")
			f.happens("1 refuses")
			if renewed.HolderKey != "" {
				time.Sleep(f.says() - monotonic.Now())
			}
			f.says("gives up")
			f.isTurnedAway(traffic.DialFailed, 2)
		})
	}
}

func TestAClientWhoseEndpointsHaveFailedIsTurnedAwayThoughItsServiceHasOtherTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "1 2", registry.Terms{})
		f.says("dial 2")
		f.renew(waits(time.Minute))
		f.happens("2 refuses")
		f.says("dial 1")
		f.happens("1 refuses")
		f.says("gives up")
		f.isTurnedAway(traffic.DialFailed, 2)
	})
}

func TestAClientThatIsNotAllowedAnyMoreDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "1", elects("/leader", time.Minute))
		f.says("dial 1")
		f.happens("1 refuses")
		f.says()
		terms := waits(time.Minute)
		terms.SourceRanges = []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
		f.renew(terms)
		f.says("gives up")
		if f.race.Follow(f.race.NewOwner(), monotonic.Now()) {
			t.Fatal("a client that is not allowed follows the owner of its port")
		}
		f.isCountedOnce(traffic.SourceNotAllowed, 1)
	})
}

func TestAClientOfAnotherServiceLeavesItsFailuresToTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := follow(t, "1", registry.Terms{})
		f.says("dial 1")
		heir := claimOf("heir", enginetest.NewRotation(enginetest.Address(5)), registry.Terms{})
		f.owner.Store(heir)
		f.claim.Lifetime.End(removal.Policy{}, traffic.ServiceRemoved, 0)
		f.happens("1 refuses")
		f.follows(heir)
		f.says("dial 5")
		for of, want := range map[*engine.Claim]traffic.Totals{f.claim: {Begun: 1, DialFailures: 1}, heir: {Begun: 1, Active: 1}} {
			if got := of.Tally.Totals(); got.Begun != want.Begun || got.Active != want.Active || got.DialFailures != want.DialFailures {
				t.Errorf("%s has counted %+v; want %+v", of.Key, got, want)
			}
		}
		f.race.Abandon()
	})
}
