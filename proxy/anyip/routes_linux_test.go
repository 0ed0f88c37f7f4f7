package anyip

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

var (
	first  = netip.MustParsePrefix("10.96.0.0/12")
	second = netip.MustParsePrefix("fd00:96::/108")
	third  = netip.MustParsePrefix("10.200.0.0/16")
)

// opened are routes that do not exist yet.
func opened(t *testing.T, instance string, ranges ...netip.Prefix) *Routes {
	t.Helper()
	r, err := Open(ranges, instance)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// installed are routes that exist.
func installed(t *testing.T, instance string, ranges ...netip.Prefix) *Routes {
	t.Helper()
	r := opened(t, instance, ranges...)
	if err := r.Install(); err != nil {
		t.Fatal(err)
	}
	return r
}

// routed are the ranges of the routes that ip(8) lists.
func routed(t *testing.T) (ranges []string) {
	t.Helper()
	for _, family := range []string{"-4", "-6"} {
		out, err := exec.Command("ip", family, "route", "show", "table", "local", "proto", "107").CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for line := range strings.Lines(string(out)) {
			ranges = append(ranges, strings.Fields(line)[1])
		}
	}
	slices.Sort(ranges)
	return ranges
}

// are fails the test unless these are the ranges.
func are(t *testing.T, want ...netip.Prefix) {
	t.Helper()
	var texts []string
	for _, p := range want {
		texts = append(texts, p.String())
	}
	slices.Sort(texts)
	if got := routed(t); !slices.Equal(got, texts) {
		t.Errorf("there are routes to %v; want %v", got, texts)
	}
}

func TestServicesCanListenInARangeThatIsRoutedHere(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	if l, err := net.Listen("tcp", "10.96.0.10:5432"); err == nil {
		l.Close()
		t.Fatal("the address is here already")
	}
	r := installed(t, "a", first, second)
	are(t, first, second)
	l, err := net.Listen("tcp", "10.96.0.10:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	conn, err := net.Dial("tcp", "10.96.0.10:5432")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if from := conn.LocalAddr().(*net.TCPAddr); !from.IP.Equal(net.IPv4(127, 0, 0, 1)) {
		t.Errorf("a client of this machine comes from %v", from)
	}
	if err := r.Remove(); err != nil {
		t.Error(err)
	}
	are(t)
	if err := r.Remove(); err != nil { // there is none any more
		t.Error(err)
	}
}

func TestARouteThatAnotherProgramDeletesComesBack(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	r := installed(t, "a", first, second)
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- r.Guard(ctx) }()
	proxytest.MustRun(t, "ip", "route", "del", "local", first.String(), "table", "local")
	proxytest.Eventually(t, func() bool { return r.Restored() == 1 }, "the route")
	are(t, first, second)
	proxytest.MustRun(t, "ip", "link", "set", "lo", "down") // which takes all routes along
	proxytest.Eventually(t, func() bool { return r.Problem() != nil }, "a problem")
	proxytest.MustRun(t, "ip", "link", "set", "lo", "up")
	proxytest.Eventually(t, func() bool { return r.Problem() == nil }, "the routes")
	are(t, first, second)
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

// TestARangeWithoutARouteHidesNoOther: the routes of the others are guarded as before, and each change is logged.
func TestARangeWithoutARouteHidesNoOther(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	proxytest.MustRun(t, "ip", "addr", "del", "::1/128", "dev", "lo") // which the route to an IPv6 range takes
	r := opened(t, "a", first, second)
	if err := r.Install(); err == nil || r.Missing() != 1 {
		t.Fatalf("error %v, %d routes are missing; want that of %v", err, r.Missing(), second)
	}
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- r.Guard(ctx) }()
	warnings, failures := glog.Stats.Warning.Lines(), glog.Stats.Error.Lines()
	proxytest.MustRun(t, "ip", "route", "del", "local", first.String(), "table", "local")
	proxytest.Eventually(t, func() bool { return r.Restored() == 1 && glog.Stats.Warning.Lines() == warnings+1 }, "the route to %v, and a warning", first)
	are(t, first)
	proxytest.MustRun(t, "ip", "addr", "add", "::1/128", "dev", "lo")
	proxytest.Eventually(t, func() bool { return r.Missing() == 0 }, "the route to %v", second)
	if n := glog.Stats.Error.Lines() - failures; n != 0 {
		t.Errorf("%d errors were logged", n)
	}
	proxytest.MustRun(t, "ip", "link", "set", "lo", "down") // which takes the IPv6 routes along
	proxytest.Eventually(t, func() bool { return r.Missing() == 1 && glog.Stats.Error.Lines() == failures+1 }, "an error about %v", second)
	if r.Restored() != 1 {
		t.Errorf("%d routes were restored; want 1: the other had never been there", r.Restored())
	}
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}

func TestASuccessorHasTheRoutesOfItsPredecessorAndNoOthers(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	installed(t, "a", first, second)
	other := installed(t, "b", third)
	successor := installed(t, "a", first) // without the second
	are(t, first, second, third)          // the predecessor serves
	if err := successor.Prune(); err != nil {
		t.Error(err)
	}
	are(t, first, third)
	installed(t, "a", first, second) // a predecessor again
	if err := successor.Remove(); err != nil {
		t.Error(err)
	}
	are(t, third) // it served, though not for long enough to prune
	installed(t, "a", first, second)
	never := installed(t, "a", first, third)
	if err := never.Withdraw(); err != nil {
		t.Error(err)
	}
	are(t, first, second, third) // the third is the other's
	if err := other.Remove(); err != nil {
		t.Error(err)
	}
	are(t, first, second)
	without := opened(t, "a")
	withoutCapabilities(t, func() {
		if err := without.Install(); err != nil {
			t.Errorf("without ranges: %v", err)
		}
	})
	if err := without.Prune(); err != nil {
		t.Error(err)
	}
	are(t)
	withoutCapabilities(t, func() { // which takes none where there is nothing to delete
		if err := errors.Join(without.Prune(), without.Remove()); err != nil {
			t.Errorf("without ranges and routes: %v", err)
		}
	})
	if r := opened(t, ""); r != nil {
		t.Errorf("a process without ranges and without a predecessor has %v", r)
	}
}

// withoutCapabilities runs a function on a thread that may make no routes.
func withoutCapabilities(t *testing.T, do func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends, and with it what it lacks
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		err := unix.Capset(&header, &none[0])
		if err == nil {
			do()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func TestCleanupDeletesAllRoutes(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	installed(t, "a", first, second)
	installed(t, "b", third)
	proxytest.MustRun(t, "ip", "route", "add", "local", "10.222.0.0/16", "dev", "lo") // somebody else's
	var deleted []netip.Prefix
	var err error
	withoutCapabilities(t, func() { deleted, err = Cleanup() })
	if !errors.Is(err, unix.EPERM) || len(deleted) != 0 {
		t.Errorf("without the capability: deleted %v, %v", deleted, err)
	}
	are(t, first, second, third)
	deleted, err = Cleanup()
	if err != nil || len(deleted) != 3 {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	are(t)
	proxytest.MustRun(t, "ip", "route", "get", "10.222.0.1")
	if deleted, err := Cleanup(); err != nil || len(deleted) != 0 {
		t.Errorf("then deleted %v, %v", deleted, err)
	}
}

func TestWithoutTheCapabilityThereAreNoRoutes(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	r := opened(t, "a", first)
	var err error
	withoutCapabilities(t, func() { err = r.Install() })
	if !errors.Is(err, ErrNoCapability) || !errors.Is(r.Problem(), ErrNoCapability) {
		t.Errorf("error %v, problem %v", err, r.Problem())
	}
	are(t)
	if err := r.Install(); err != nil || r.Problem() != nil {
		t.Errorf("with it: error %v, problem %v", err, r.Problem())
	}
	are(t, first)
}
