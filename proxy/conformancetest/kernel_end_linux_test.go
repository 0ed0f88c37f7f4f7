package conformancetest

import (
	"testing"

	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// The table of a process that serves other ports keeps the kernel translating, and that process knows nothing of these flows.
func TestAProcessThatEndsLeavesNoUDPFlowsBesideOneThatServesOtherPorts(t *testing.T) {
	onAWire(t, func(w *wire) {
		without := kernelConfig()
		without.Kernel = false
		nodes := newNodesOf(t, kernelConfig(), kernelConfig(), without)
		one, two := w.serve("one", "10.77.0.3:9000"), w.serve("two", "10.77.0.4:9000")
		dns := checkedService("dns", udp(5353), registry.Check{Send: "ping"})
		nodes[0].apply(dns, endpoints("dns", one.Addr))
		nodes[1].apply(checkedService("web", tcp(8080), registry.Check{}), endpoints("web", two.Addr))
		nodes[0].becomes(kernel.Carried)
		nodes[1].becomes(kernel.Carried)
		client := w.dial("udp", "10.77.0.1:5353")
		if answer := askUDP(t, client); answer != "one" {
			t.Fatalf("%s answers", answer)
		}
		nodes[0].end()
		nodes[2].apply(dns, endpoints("dns", two.Addr))
		proxytest.Eventually(t, func() bool { return askUDP(t, client) == "two" }, "the endpoint that the port has by now")
	})
}
