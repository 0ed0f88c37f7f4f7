package fdstore

import (
	"net/netip"
	"strings"
	"testing"

	"kubeproxy/registry"
)

func TestNamesOfSocketsComeBackAsTheyWere(t *testing.T) {
	for _, id := range []registry.ListenerID{
		{Number: 80}, {Addr: netip.MustParseAddr("127.0.0.2"), Number: 5432}, {Addr: netip.IPv6Loopback(), Number: 65535},
	} {
		text := name(id)
		if got, ok := parseName(text); !ok || got != id || strings.Contains(text, ":") {
			t.Errorf("%v has the name %s, which is %v, %v", id, text, got, ok)
		}
	}
	for _, text := range []string{"kube-proxy-tcp-0", "kube-proxy-tcp-", "kube-proxy-tcp-80-", "kube-proxy-tcp-80-x", "kube-proxy-tcp-080", "80", "other"} {
		if id, ok := parseName(text); ok {
			t.Errorf("%s is the name of %v", text, id)
		}
	}
}
