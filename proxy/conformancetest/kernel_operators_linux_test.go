package conformancetest

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// override has an operator's word about an endpoint of a service in force for an hour.
func (n *node) override(service string, e *remote, word balance.Word) {
	n.t.Helper()
	match, err := registry.ParseAddrMatch(e.Addr.String())
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := n.Override(match, balance.Override{Service: named(service), Word: word, Began: time.Now(), Until: time.Now().Add(time.Hour)}, false); err != nil {
		n.t.Fatal(err)
	}
}

// A drain is over after a while by itself, so the node does not ask for another record.
func TestADrainIsNoComplaintAboutTheKernel(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		one, two := w.serve("one", "10.77.0.3:9000"), w.serve("two", "10.77.0.4:9000")
		n.apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", one.Addr, two.Addr))
		n.becomes(kernel.Carried)
		n.override("web", one, balance.Drain)
		if got := n.KernelStatus().Complaint(); got != "" {
			t.Errorf("%q; want no complaint", got)
		}
		n.becomes(kernel.Overridden)
	})
}

func TestUDPFlowsOfTheKernelLeaveAnEndpointThatIsDisabledAndNotOneThatIsDrained(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		remotes := map[string]*remote{"one": w.serve("one", "10.77.0.3:9000"), "two": w.serve("two", "10.77.0.4:9000")}
		n.apply(checkedService("dns", udp(5353), registry.Check{Send: "ping"}), endpoints("dns", remotes["one"].Addr, remotes["two"].Addr))
		n.becomes(kernel.Carried)
		client := w.dial("udp", "10.77.0.1:5353")
		has := askUDP(t, client)
		n.override("dns", remotes[has], balance.Drain)
		for range 3 {
			if answer := askUDP(t, client); answer != has {
				t.Errorf("while %s is drained, %s answers", has, answer)
			}
		}
		n.override("dns", remotes[has], balance.Disable)
		for range 3 {
			if answer := askUDP(t, client); answer == has {
				t.Errorf("%s answers, and is disabled", has)
			}
		}
	})
}

// Nobody would end the flows of a table that has gone: its clients would keep their endpoint, or be answered by nobody.
func TestAUDPClientOfTheKernelIsAnsweredAfterATakeOverByASuccessorWithoutIt(t *testing.T) {
	onAWire(t, func(w *wire) {
		without := kernelConfig()
		without.Kernel = false
		nodes := newNodesOf(t, kernelConfig(), without)
		one, two := w.serve("one", "10.77.0.3:9000"), w.serve("two", "10.77.0.4:9000")
		translate(t, unix.IPPROTO_TCP, addrPort("10.77.0.1:1"), one.IP) // so the kernel goes on to track and translate
		records := []change{checkedService("dns", udp(5353), registry.Check{Send: "ping"}), endpoints("dns", one.Addr)}
		nodes[0].apply(records...)
		nodes[0].becomes(kernel.Carried)
		client := w.dial("udp", "10.77.0.1:5353")
		if answer := askUDP(t, client); answer != "one" {
			t.Fatalf("%s answers", answer)
		}
		nodes[0].passTo(nodes[1], records...)
		nodes[1].apply(endpoints("dns", two.Addr))
		proxytest.Eventually(t, func() bool { return askUDP(t, client) == "two" }, "the endpoint that the successor has")
	})
}
