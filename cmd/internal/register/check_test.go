package register

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"kubeproxy/registry"
)

func TestAnHTTPCheckMayAskAPortThatTheServiceDoesNotHave(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.RequestURI() != "/primary?lag=1" {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(status)
	}))
	defer s.Close()
	at := netip.MustParseAddrPort(s.Listener.Addr().String())
	of := func(p registry.Protocol) *Instance {
		return &Instance{Address: at.Addr(), Ports: []Port{{Protocol: p, Number: 1}}} // where nobody listens
	}
	_, port, _ := strings.Cut(at.String(), ":")
	for _, in := range []*Instance{of(registry.TCP), of(registry.UDP)} {
		check, err := ParseCheck("http=:"+port+"/primary?lag=1", in)
		if err != nil {
			t.Fatal(err)
		}
		for _, status = range []int{http.StatusOK, http.StatusServiceUnavailable} {
			if err := check(t.Context()); (err == nil) != (status == http.StatusOK) {
				t.Errorf("status %d: %v", status, err)
			}
		}
	}
	for _, bad := range []string{"http=", "http=primary", "http=:/primary", "http=:0/primary", "http=:65536/primary", "http=:8008", "http=8008/primary", "http=host:8008/primary", "http=:+1/primary"} {
		if _, err := ParseCheck(bad, of(registry.TCP)); err == nil {
			t.Errorf("%s is taken", bad)
		}
	}
}
