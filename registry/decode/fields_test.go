package decode

import (
	"net/netip"
	"testing"
)

// What package netip takes for a plain IPv4 address is one here, and nothing else is.
func FuzzParseIPv4(f *testing.F) {
	for _, s := range []string{"10.244.1.5", "0.0.0.0", "255.255.255.255", "256.1.1.1", "1.2.3", "1.2.3.4.5", "01.2.3.4", "1.2.3.", "1..2.3", "1.2.3.4 ", "::1", "a.b.c.d", "", "1.2.3.0004", "1.2.3.00"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		want, err := netip.ParseAddr(string(text))
		if err != nil || !want.Is4() {
			want = netip.Addr{}
		}
		if got := parseIPv4(text); got != want {
			t.Errorf("%q: %v; want %v", text, got, want)
		}
	})
}
