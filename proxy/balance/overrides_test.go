package balance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"kubeproxy/registry"
)

var webName = registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}

// behind gives the service web these endpoints.
func behind(lb *LoadBalancerRR, weights registry.Weights, texts ...string) {
	e := &registry.Endpoints{Name: webName, Weights: weights}
	var addrs []registry.Addr
	for _, text := range texts {
		addrs = append(addrs, address(text))
	}
	if len(addrs) > 0 {
		e.ByPort = []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs...)}}
	}
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{webName: e})
	lb.LetGo()
}

func address(text string) registry.Addr {
	a, err := registry.ParseAddr(text)
	if err != nil {
		panic(err)
	}
	return a
}

func matching(text string) registry.AddrMatch {
	m, err := registry.ParseAddrMatch(text)
	if err != nil {
		panic(err)
	}
	return m
}

func until(lasts time.Duration, word Word) Override {
	return Override{Service: webName, Word: word, Began: time.Now(), Until: time.Now().Add(lasts)}
}

// weightsOf shows the weights in force of the endpoints of web.
func weightsOf(lb *LoadBalancerRR) (all []string) {
	first, _, _ := lb.EndpointsOf(registry.PortKey{Name: webName}, 100)
	for _, e := range first {
		all = append(all, fmt.Sprintf("%v=%d", e.Addr, e.Weight))
	}
	return all
}

func wantWeights(t *testing.T, lb *LoadBalancerRR, want ...string) {
	t.Helper()
	if got := weightsOf(lb); !slices.Equal(got, want) {
		t.Errorf("weights are %q; want %q", got, want)
	}
}

// TestAnOverrideLeavesAnEndpointThatAnswersOverEachProtocol: it may be another one over each.
func TestAnOverrideLeavesAnEndpointThatAnswersOverEachProtocol(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	r := lb.Hold(registry.PortKey{Name: webName})
	behind(lb, "", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	lb.setService(webName, serviceOver(registry.TCP, registry.UDP))
	r.Endpoints()[0].Failed(registry.TCP)
	r.Endpoints()[1].Failed(registry.UDP)
	if _, err := lb.Override(matching("10.0.0.3"), until(time.Hour, Drain), false); err != nil {
		t.Errorf("while another endpoint answers over each protocol: %v", err)
	}
	if _, err := lb.Override(matching("10.0.0.2"), until(time.Hour, Drain), false); !errors.Is(err, ErrLastEndpoint) {
		t.Errorf("the last that answers over TCP is drained: %v; want %v", err, ErrLastEndpoint)
	}
}

// TestAnOverrideWinsOverTheRecordUntilItsEndpointGoes, however the record changes meanwhile; one that comes back is as its record says.
func TestAnOverrideWinsOverTheRecordUntilItsEndpointGoes(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	var ended []string
	lb.Tell(func(o Override, why string) { ended = append(ended, o.String()+": "+why) })
	lb.SettleOverrides()
	lb.Hold(registry.PortKey{Name: webName})
	behind(lb, "", "10.0.0.1:80", "10.0.0.2:80")
	if done, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), false); err != nil || len(done) != 1 {
		t.Fatal(done, err)
	}
	wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=1")
	lb.overrides.n = maxOverrides // one in the place of another is no more of them
	if done, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), false); err != nil || len(done) != 1 || done[0].Before == nil || done[0].Before.Word != Drain {
		t.Fatal(done, err)
	}
	if _, err := lb.Override(matching("10.0.0.2"), until(time.Hour, Drain), true); err == nil {
		t.Errorf("there are %d overrides already, and another one is taken", maxOverrides)
	}
	lb.overrides.n = 1
	behind(lb, "10.0.0.1=5", "10.0.0.2:80", "10.0.0.1:80", "10.0.0.3:80")
	wantWeights(t, lb, "10.0.0.2:80=1", "10.0.0.1:80=0", "10.0.0.3:80=1")
	weigh := until(time.Hour, Weigh)
	weigh.Weight = 7
	if _, err := lb.Override(matching("10.0.0.3:80"), weigh, false); err != nil {
		t.Fatal(err)
	}
	wantWeights(t, lb, "10.0.0.2:80=1", "10.0.0.1:80=0", "10.0.0.3:80=7")
	behind(lb, "", "10.0.0.2:80", "10.0.0.3:80")
	behind(lb, "", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.1:80")
	wantWeights(t, lb, "10.0.0.2:80=1", "10.0.0.3:80=7", "10.0.0.1:80=1")
	if want := []string{"10.0.0.1:80 is drained: the endpoint has gone"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q; want %q", ended, want)
	}
	if got := lb.Enable(webName, registry.AddrMatch{}); len(got) != 1 {
		t.Errorf("%d were ended; want 1", len(got))
	}
	wantWeights(t, lb, "10.0.0.2:80=1", "10.0.0.3:80=1", "10.0.0.1:80=1")
	if n := len(lb.Overrides()); n != 0 {
		t.Errorf("%d are left", n)
	}
}

// TestADrainedEndpointIsGivenNoClient, by no algorithm and with no affinity: a choice that was made before skips it.
func TestADrainedEndpointIsGivenNoClient(t *testing.T) {
	for _, by := range registry.Balances() {
		lb := NewLoadBalancerRR(false)
		r := lb.Hold(registry.PortKey{Name: webName})
		behind(lb, "", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
		terms := &registry.Terms{Balance: by, AffinityTimeout: time.Hour}
		client := address("10.9.9.9:1").IP.Addr()
		choice := r.ChooseFor(registry.TCP, client, terms, nil)
		e, _ := choice.Next()
		choice.Reached(e)
		early := r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
		if _, err := lb.Override(matching(e.Addr.String()), until(time.Hour, Disable), false); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			again := r.ChooseFor(registry.TCP, client, terms, nil)
			if got, ok := again.Next(); !ok || got == e {
				t.Errorf("%v: a client that had it is given it again", by)
			}
		}
		for got, ok := early.Next(); ok; got, ok = early.Next() {
			if got == e {
				t.Errorf("%v: a choice that was made before offers it", by)
			}
		}
	}
}

// TestTheLastEndpointThatAnswersIsOverriddenByForceAlone.
func TestTheLastEndpointThatAnswersIsOverriddenByForceAlone(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	r := lb.Hold(registry.PortKey{Name: webName})
	behind(lb, "", "10.0.0.1:80", "10.0.0.2:80")
	if _, err := lb.Override(matching("10.0.0.9"), until(time.Hour, Drain), true); !errors.Is(err, ErrNoSuchEndpoint) {
		t.Errorf("one that is not there: %v", err)
	}
	r.Endpoints()[1].Failed(registry.TCP)
	if _, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), false); !errors.Is(err, ErrLastEndpoint) {
		t.Errorf("beside one that fails: %v", err)
	}
	wantWeights(t, lb, "10.0.0.1:80=1", "10.0.0.2:80=1")
	if _, err := lb.Override(matching("10.0.0.2"), until(time.Hour, Drain), false); err != nil {
		t.Errorf("one that fails, beside one that does not: %v", err)
	}
	if _, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), true); err != nil {
		t.Errorf("by force: %v", err)
	}
	wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=0")
}

// TestTheLastEndpointOnTheNodeIsOverriddenByForceAlone: with policy Local, one on another node takes no client of this node.
func TestTheLastEndpointOnTheNodeIsOverriddenByForceAlone(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	lb.Node.Name = "n1"
	lb.Hold(registry.PortKey{Name: webName})
	addrs := registry.NewAddrs(address("10.0.0.1:80"), address("10.0.0.2:80"))
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{webName: {Name: webName, ByPort: []registry.PortAddrs{{Addrs: addrs, Places: registry.Places([]byte{byte(registry.OnNode), 0})}}}})
	local := serviceOver(registry.TCP)
	local.Asked = &registry.Terms{Local: true}
	lb.setService(webName, local)
	if _, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), false); !errors.Is(err, ErrLastEndpoint) {
		t.Errorf("beside one on another node: %v; want %v", err, ErrLastEndpoint)
	}
	if _, err := lb.Override(matching("10.0.0.2"), until(time.Hour, Drain), false); err != nil {
		t.Errorf("one on another node, which no client of this node gets: %v", err)
	}
	if _, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), true); err != nil {
		t.Errorf("by force: %v", err)
	}
	lb.Enable(webName, registry.AddrMatch{})
	lb.setService(webName, serviceOver(registry.TCP))
	if _, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), false); err != nil {
		t.Errorf("with policy Cluster, beside one on another node: %v", err)
	}
}

// TestAnEndpointOnAnotherNodeIsDrainedWhereNoneIsOnTheNode: with policy Local its clients lose nothing.
func TestAnEndpointOnAnotherNodeIsDrainedWhereNoneIsOnTheNode(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	lb.Node.Name = "n1"
	lb.Hold(registry.PortKey{Name: webName})
	behind(lb, "", "10.0.0.1:80", "10.0.0.2:80")
	local := serviceOver(registry.TCP)
	local.Asked = &registry.Terms{Local: true}
	lb.setService(webName, local)
	if _, err := lb.Override(matching("10.0.0.1"), until(time.Hour, Drain), false); err != nil {
		t.Error(err)
	}
}

// TestAnOverrideOutlastsItsEndpointWhileASourceIsSilent, one of before a restart and one of since. When all sources have been read, those end whose
// endpoint is not there.
func TestAnOverrideOutlastsItsEndpointWhileASourceIsSilent(t *testing.T) {
	lb := NewLoadBalancerRR(false)
	var ended []string
	lb.Tell(func(o Override, why string) { ended = append(ended, o.String()+": "+why) })
	restored := until(time.Hour, Drain)
	restored.Addr = address("10.0.0.1:80")
	node := Override{Word: Drain, Until: time.Now().Add(time.Hour)}
	elsewhere, gone := restored, restored
	elsewhere.Service.Name, gone.Addr = "nobody", address("10.0.0.9:80")
	lb.RestoreOverrides([]Override{restored, node, elsewhere, gone})
	lb.Hold(registry.PortKey{Name: webName})
	behind(lb, "") // the record of a state file whose endpoints have to be asked for
	behind(lb, "", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=1", "10.0.0.3:80=1")
	if _, err := lb.Override(matching("10.0.0.2"), until(time.Hour, Drain), false); err != nil {
		t.Fatal(err)
	}
	behind(lb, "")
	behind(lb, "", "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80")
	wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=0", "10.0.0.3:80=1")
	if len(ended) > 0 {
		t.Errorf("ended %q while a source is silent", ended)
	}
	lb.SettleOverrides()
	slices.Sort(ended)
	if want := []string{"10.0.0.1:80 is drained: the endpoint has gone", "10.0.0.9:80 is drained: the endpoint has gone"}; !slices.Equal(ended, want) {
		t.Errorf("ended %q; want %q: one of another service, and one of no endpoint", ended, want)
	}
	wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=0", "10.0.0.3:80=1")
	behind(lb, "", "10.0.0.2:80", "10.0.0.3:80")
	if n := len(lb.Overrides()); n != 2 {
		t.Errorf("%d are in force; want 2: of the node, and of 10.0.0.2", n)
	}
}

// TestAnOverrideEndsToTheSecond, and those of before a restart end when their endpoint is not there.
func TestAnOverrideEndsToTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lb := NewLoadBalancerRR(false)
		lb.Hold(registry.PortKey{Name: webName})
		gone := until(time.Hour, Drain)
		gone.Addr = address("10.0.0.9:80")
		other := gone
		other.Service.Name = "nobody"
		kept := until(time.Minute, Drain)
		kept.Addr = address("10.0.0.1:80")
		lb.RestoreOverrides([]Override{gone, other, kept})
		behind(lb, "", "10.0.0.1:80", "10.0.0.2:80")
		lb.SettleOverrides()
		wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=1")
		if n := len(lb.Overrides()); n != 1 {
			t.Errorf("%d are in force; want 1", n)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); lb.RunOverrides(ctx) }()
		synctest.Wait()
		if _, err := lb.Override(matching("10.0.0.2"), until(10*time.Second, Weigh), true); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10*time.Second - time.Millisecond)
		wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=0")
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=1")
		time.Sleep(50 * time.Second)
		synctest.Wait()
		wantWeights(t, lb, "10.0.0.1:80=1", "10.0.0.2:80=1")
		stop()
		<-done
	})
}

// TestAClockThatIsSetMovesNoEnd, back or forth: the time that passes counts.
func TestAClockThatIsSetMovesNoEnd(t *testing.T) {
	for _, by := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		lb := NewLoadBalancerRR(false)
		lb.Hold(registry.PortKey{Name: webName})
		behind(lb, "", "10.0.0.1:80", "10.0.0.2:80")
		o := until(time.Minute, Drain)
		if _, err := lb.Override(matching("10.0.0.1"), o, false); err != nil {
			t.Fatal(err)
		}
		lb.expire(asIfSet(o.Until.Add(-time.Millisecond), by))
		wantWeights(t, lb, "10.0.0.1:80=0", "10.0.0.2:80=1")
		lb.expire(asIfSet(o.Until, by))
		wantWeights(t, lb, "10.0.0.1:80=1", "10.0.0.2:80=1")
	}
}

// asIfSet returns a time as a process reads it whose clock on the wall was set by d: the monotonic reading is as before. A [time.Time] with one has
// the seconds of the clock on the wall in bits 30 to 62 of its first word.
func asIfSet(at time.Time, d time.Duration) time.Time {
	*(*uint64)(unsafe.Pointer(&at)) += uint64(d/time.Second) << 30
	return at
}
