package node

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/cmd/internal/control"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

var web = registry.Name{Namespace: registry.DefaultNamespace, Name: "web"}

// list gives the service web these endpoints.
func list(t *testing.T, lb *balance.LoadBalancerRR, texts ...string) {
	t.Helper()
	e := &registry.Endpoints{Name: web}
	var addrs []registry.Addr
	for _, text := range texts {
		addr, err := registry.ParseAddr(text)
		if err != nil {
			t.Fatal(err)
		}
		addrs = append(addrs, addr)
	}
	e.ByPort = []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs...)}}
	lb.SetEndpoints(map[registry.Name]*registry.Endpoints{web: e})
	lb.LetGo()
}

// drain has an endpoint of web drained.
func drain(t *testing.T, lb *balance.LoadBalancerRR, text string) {
	t.Helper()
	match, err := registry.ParseAddrMatch(text)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lb.Override(match, balance.Override{Service: web, Began: time.Now(), Until: time.Now().Add(time.Hour)}, true); err != nil {
		t.Fatal(err)
	}
}

// A running keeper is one of a process that serves, until the test ends.
type runningKeeper struct {
	*keeper
	stop func() // returns once it has ended
}

func keep(t *testing.T, dir string) runningKeeper {
	t.Helper()
	k := newKeeper(balance.NewLoadBalancerRR(false))
	k.dir = dir
	k.balancer.Tell(func(balance.Override, string) { k.changed() })
	k.balancer.SettleOverrides() // each source has been read
	serving := make(chan struct{})
	close(serving)
	stop := background(t.Context(), func(ctx context.Context) { k.run(ctx, serving) })
	t.Cleanup(stop)
	return runningKeeper{k, stop}
}

// kept reads which endpoints a process that starts now would drain.
func kept(t *testing.T, dir string) (addrs []string) {
	t.Helper()
	k := newKeeper(balance.NewLoadBalancerRR(false))
	k.dir = dir
	k.load()
	for _, o := range control.NewOverrides(k.balancer.Overrides()) {
		addrs = append(addrs, o.Endpoint)
	}
	return addrs
}

func awaits(t *testing.T, dir string, want ...string) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return slices.Equal(kept(t, dir), want) }, "the file to have %q", want)
}

// TestAnOverrideThatEndsByItselfIsNotKept, so that it is not in force again after a crash.
func TestAnOverrideThatEndsByItselfIsNotKept(t *testing.T) {
	dir := t.TempDir()
	k := keep(t, dir)
	list(t, k.balancer, "10.0.0.1:80", "10.0.0.2:80")
	drain(t, k.balancer, "10.0.0.1:80")
	drain(t, k.balancer, "10.0.0.2:80")
	if err := k.save(); err != nil {
		t.Fatal(err)
	}
	awaits(t, dir, "10.0.0.1:80", "10.0.0.2:80")
	list(t, k.balancer, "10.0.0.2:80")
	awaits(t, dir, "10.0.0.2:80")
	list(t, k.balancer, "10.0.0.3:80")
	k.stop()
	if got := kept(t, dir); len(got) > 0 {
		t.Errorf("after the end the file has %q", got)
	}
}

// TestTheFileOfOverridesIsThatOfWhoServes: a predecessor writes nothing from when it tells its successor of the overrides, unless the take-over fails.
func TestTheFileOfOverridesIsThatOfWhoServes(t *testing.T) {
	dir := t.TempDir()
	k := keep(t, dir)
	list(t, k.balancer, "10.0.0.1:80", "10.0.0.2:80")
	drain(t, k.balancer, "10.0.0.1:80")
	if err := k.save(); err != nil {
		t.Fatal(err)
	}
	k.give()
	drain(t, k.balancer, "10.0.0.2:80")
	if err := k.save(); err != nil {
		t.Error(err)
	}
	if got := kept(t, dir); !slices.Equal(got, []string{"10.0.0.1:80"}) {
		t.Errorf("while a successor takes over the file has %q", got)
	}
	k.takeBack()
	awaits(t, dir, "10.0.0.1:80", "10.0.0.2:80")
	k.give()
	list(t, k.balancer, "10.0.0.3:80") // both end
	k.stop()
	if got := kept(t, dir); len(got) != 2 {
		t.Errorf("once a successor serves, the predecessor writes %q", got)
	}
}

// TestNothingIsWrittenBeforeThisProcessServes: the file is the predecessor's until then.
func TestNothingIsWrittenBeforeThisProcessServes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(balance.NewLoadBalancerRR(false))
		k.dir = t.TempDir()
		serving := make(chan struct{})
		defer background(t.Context(), func(ctx context.Context) { k.run(ctx, serving) })()
		exists := func() bool { _, err := os.Stat(k.path()); return err == nil }
		k.changed()
		synctest.Wait()
		if exists() {
			t.Error("the file is written")
		}
		close(serving)
		synctest.Wait()
		if !exists() {
			t.Error("then the file is not written")
		}
	})
}

// TestAFileThatCannotBeWrittenIsTriedAgain: an override that has ended is in it until then.
func TestAFileThatCannotBeWrittenIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := keep(t, filepath.Join(t.TempDir(), "later"))
		exists := func() bool { _, err := os.Stat(k.path()); return err == nil }
		k.changed()
		synctest.Wait()
		if err := os.Mkdir(k.dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(saveAgain) // of the test's own clock
		synctest.Wait()
		if !exists() {
			t.Errorf("after %v the file is not written", saveAgain)
		}
		k.stop()
	})
}
