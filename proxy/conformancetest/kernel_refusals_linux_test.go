package conformancetest

import (
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// setting changes a setting of the kernel in the network of the test.
func setting(t *testing.T, path, value string) {
	t.Helper()
	if err := os.WriteFile("/proc/sys/net/"+path, []byte(value), 0); err != nil {
		t.Fatal(err)
	}
}

// complains waits until the node complains of something that keeps ports from the kernel; "" for nothing.
func (n *node) complains(of string) {
	n.t.Helper()
	proxytest.Eventually(n.t, func() bool {
		is := n.KernelStatus().Complaint()
		return of == "" && is == "" || of != "" && strings.Contains(is, of)
	}, "the node complains of %q", of)
}

// A node that does not forward what comes in would lose the packets of clients: it serves them in userspace, says what to set, and has the kernel
// carry them once that is set.
func TestWithoutForwardingUserspaceServesAndTheNodeSaysWhatToSet(t *testing.T) {
	onAWire(t, func(w *wire) {
		one := w.serve("one", "10.77.0.3:9000")
		for _, c := range []struct {
			name, setting, says string
			reason              kernel.Reason
		}{
			{"nothing is forwarded", "ipv4/ip_forward", "set net.ipv4.ip_forward=1", kernel.Off},
			{"an interface does not forward", "ipv4/conf/here/forwarding", "come in by here: set net.ipv4.conf.here.forwarding=1", kernel.NotForwarded},
		} {
			t.Run(c.name, func(t *testing.T) {
				w := &wire{w.Peer, t}
				ipv6 := "1"
				if c.reason == kernel.Off {
					ipv6 = "0"
				}
				setting(t, "ipv6/conf/all/forwarding", ipv6)
				setting(t, c.setting, "0")
				n := w.node()
				n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", one.Addr))
				n.becomes(c.reason)
				n.complains(c.says)
				if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || answer != "one 10.77.0.1" {
					t.Errorf("a client is answered %q, %v", answer, err)
				}
				setting(t, c.setting, "1")
				n.becomes(kernel.Carried) // it looks every 10 s
				n.complains("")
				if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || answer != "one 10.77.0.1" {
					t.Errorf("once it is set, a client is answered %q, %v", answer, err)
				}
			})
		}
	})
}

// -kernel=auto without checks has no effect, which nothing else would show.
func TestWhereNothingIsCheckedTheNodeSaysThatTheKernelCarriesNothing(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		one := w.serve("one", "10.77.0.3:9000")
		n.apply(service("web", tcp(8080)), endpoints("web", one.Addr))
		n.becomes(kernel.NotChecked)
		n.complains("1 port whose endpoints are not checked. Give -check_endpoints")
		n.apply(checkedService("web", tcp(8080), registry.Check{}))
		n.becomes(kernel.Carried)
		n.complains("")
	})
}

// starving answers the checks of a node; while it is set, each lacks a descriptor.
type starving struct{ atomic.Bool }

func (s *starving) starts(n *node) {
	n.balancer.Checker.Ask = func(*checks.Key) error {
		if s.Load() {
			return syscall.EMFILE
		}
		return nil
	}
}

func (*starving) configure(*proxy.Config)         {}
func (*starving) complete(*node, *registry.Batch) {}
func (*starving) settle(*node)                    {}

// The kernel cannot give a client another endpoint, so it gets none that may hang by now.
func TestAPortWhoseChecksAreOverdueIsUserspacesUntilTheyAreOnTimeAgain(t *testing.T) {
	onAWire(t, func(w *wire) {
		starve := new(starving)
		wired = starve
		defer func() { wired = nil }()
		n := w.node()
		well, hung := w.serve("well", "10.77.0.3:9000"), w.serve("hung", "10.77.0.4:9000")
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", well.Addr, hung.Addr))
		n.becomes(kernel.Carried)
		starve.Store(true)
		w.deafen(hung) // which no check finds out
		n.becomes(kernel.Overdue)
		for range 8 {
			if answer, err := say(w.dial("tcp", "10.77.0.1:8080")); err != nil || !strings.HasPrefix(answer, "well") {
				t.Errorf("while checks are overdue, a client is answered %q, %v", answer, err)
			}
		}
		if sum := totalsOf(n, "web"); sum.Begun-sum.Carried != 8 {
			t.Errorf("userspace has served %d clients; want 8", sum.Begun-sum.Carried)
		}
		starve.Store(false)
		n.becomes(kernel.Carried)
	})
}
