package registry

import (
	"fmt"
	"strings"
	"testing"
)

// A misspelt guard is no guard: a name with our prefix that means nothing makes the record a refused one. Other programs' names are theirs.
func TestAnUnknownAnnotationWithOurPrefixIsAnErrorAndOneNearOursAWarning(t *testing.T) {
	has := " is unknown: this release has " + enumerate(ourOwn(ServiceAnnotations))
	for _, c := range []struct {
		kind         Kind
		name         string
		warning, err string
	}{
		{KindService, "kube-proxy/check-udp", "", ""},
		{KindService, "kube-proxy/check-dup", "", "annotation kube-proxy/check-dup has no effect: did you mean kube-proxy/check-udp?"},
		{KindService, "Kube-Proxy/Check-UDP", "", "annotation Kube-Proxy/Check-UDP has no effect: did you mean kube-proxy/check-udp?"},
		{KindService, "kube-proxy/colour", "", "annotation kube-proxy/colour" + has},
		{KindService, "kube-proxy/", "", "annotation kube-proxy/" + has},
		{KindService, "kube-proxy/\x1b]52;c;", "", `annotation "kube-proxy/\x1b]52;c;"` + has},
		{KindService, "kube-proxy/weight", "", "annotation kube-proxy/weight has no effect in Service: it counts in Endpoints and EndpointSlice"},
		{KindEndpoints, "kube-proxy/check-udp", "", "annotation kube-proxy/check-udp has no effect in Endpoints: it counts in Service"},
		{KindEndpoints, "kube-proxy/registrar", "", "annotation kube-proxy/registrar has no effect in Endpoints: it counts in EndpointSlice"},
		{KindEndpoints, "kube-proxy/weights", "", "annotation kube-proxy/weights has no effect: did you mean kube-proxy/weight?"},
		{KindEndpointSlice, "kube-proxy/registrar", "", ""},
		{KindEndpointSlice, "kube-proxy/weight", "", ""},
		{KindEndpointSlice, "kube-proxy/colour", "", "annotation kube-proxy/colour is unknown: this release has kube-proxy/weight, kube-proxy/zone and kube-proxy/registrar"},

		{KindService, "service.beta.kubernetes.io/load-balancer-source-range", "annotation service.beta.kubernetes.io/load-balancer-source-range has no effect: did you mean service.beta.kubernetes.io/load-balancer-source-ranges?", ""},
		{KindService, "service.kubernetes.io/load-balancer-source-range", "annotation service.kubernetes.io/load-balancer-source-range has no effect: did you mean service.beta.kubernetes.io/load-balancer-source-ranges?", ""},
		{KindService, "haproxy.com/check", "annotation haproxy.com/check has no effect: did you mean haproxy.org/check?", ""},
		{KindService, "haproxy.org/chekc", "annotation haproxy.org/chekc has no effect: did you mean haproxy.org/check?", ""},
		{KindService, "kubeproxy/check-udp", "annotation kubeproxy/check-udp has no effect: did you mean kube-proxy/check-udp?", ""},
		{KindEndpoints, "haproxy.org/check", "annotation haproxy.org/check has no effect in Endpoints: it counts in Service", ""},
		{KindEndpoints, "haproxy.org/checks", "annotation haproxy.org/checks has no effect: haproxy.org/check, which it resembles, counts in Service", ""},

		{KindService, "haproxy.org/timeout-client", "", ""},
		{KindService, "haproxy.org/timeout-server", "", ""},
		{KindService, "haproxy.org/cookie-persistence", "", ""},
		{KindService, "nginx.ingress.kubernetes.io/load-balance", "", ""},
		{KindService, "service.beta.kubernetes.io/aws-load-balancer-source-ranges", "", ""},
		{KindService, "service.beta.kubernetes.io/azure-load-balancer-internal", "", ""},
		{KindService, "kubectl.kubernetes.io/last-applied-configuration", "", ""},
		{KindService, "check", "", ""},
		{KindEndpoints, "endpoints.kubernetes.io/last-change-trigger-time", "", ""},
		{KindEndpoints, "control-plane.alpha.kubernetes.io/leader", "", ""},
	} {
		var a Annotations
		counts := a.Counts(c.kind, []byte(c.name))
		warning, err := "", ""
		for _, w := range a.Warnings {
			warning += string(w)
		}
		if a.Err != nil {
			err = a.Err.Error()
		}
		theirs := c.warning == "" && c.err == "" && !strings.HasPrefix(c.name, "kube-proxy/")
		if warning != c.warning || err != c.err || counts != (c.warning == "" && c.err == "" && !theirs) {
			t.Errorf("%v %s: counts %t, warning %q, error %q; want %q and %q", c.kind, c.name, counts, warning, err, c.warning, c.err)
		}
	}
}

// However many annotations of others a record has, those of ours are judged, and the others cost little.
func TestOnlyTheFirstNamesOfOthersAreCompared(t *testing.T) {
	var a Annotations
	for i := range 10 * maxJudged {
		a.Counts(KindService, fmt.Appendf(nil, "haproxy.org/chec%c", 'l'+i%2))
	}
	if len(a.Warnings) > maxJudged {
		t.Errorf("%d names were compared", len(a.Warnings))
	}
	if a.Counts(KindService, []byte("kube-proxy/chek-udp")); a.Err == nil {
		t.Error("a misspelt name of ours passes")
	}
}
