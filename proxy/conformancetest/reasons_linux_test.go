package conformancetest

import (
	"slices"
	"testing"

	"kubeproxy/proxy/traffic"
)

func TestNoReasonIsWithoutACase(t *testing.T) {
	words := make(map[string]bool)
	for _, why := range traffic.Reasons() {
		if why.String() == "" || words[why.String()] {
			t.Errorf("reason %d is spelled %q", why, why)
		}
		words[why.String()] = true
		if !slices.ContainsFunc(slices.Concat(reasonCases, linuxReasonCases), func(c reasonCase) bool { return c.why == why }) {
			t.Errorf("nothing is done to a client to make it end by %s", why)
		}
	}
}
