package spelling

import (
	"fmt"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// A misspelt guard is no guard: a name with our prefix that means nothing makes the record a refused one. Other programs' names are theirs.
func TestAnUnknownAnnotationWithOurPrefixIsAnErrorAndOneNearOursAWarning(t *testing.T) {
	has := " is unknown: this release has " + enumerate(ourOwn(registry.ServiceAnnotations))
	for _, c := range []struct {
		kind         registry.Kind
		name         string
		warning, err string
	}{
		{registry.KindService, "kube-proxy/check-udp", "", ""},
		{registry.KindService, "kube-proxy/check-dup", "", "annotation kube-proxy/check-dup has no effect: did you mean kube-proxy/check-udp?"},
		{registry.KindService, "Kube-Proxy/Check-UDP", "", "annotation Kube-Proxy/Check-UDP has no effect: did you mean kube-proxy/check-udp?"},
		{registry.KindService, "kube-proxy/colour", "", "annotation kube-proxy/colour" + has},
		{registry.KindService, "kube-proxy/", "", "annotation kube-proxy/" + has},
		{registry.KindService, "kube-proxy/\x1b]52;c;", "", `annotation "kube-proxy/\x1b]52;c;"` + has},
		{registry.KindService, "kube-proxy/weight", "", "annotation kube-proxy/weight has no effect in Service: it counts in Endpoints and EndpointSlice"},
		{registry.KindEndpoints, "kube-proxy/check-udp", "", "annotation kube-proxy/check-udp has no effect in Endpoints: it counts in Service"},
		{registry.KindEndpoints, "kube-proxy/registrar", "", "annotation kube-proxy/registrar has no effect in Endpoints: it counts in EndpointSlice"},
		{registry.KindEndpoints, "kube-proxy/weights", "", "annotation kube-proxy/weights has no effect: did you mean kube-proxy/weight?"},
		{registry.KindEndpointSlice, "kube-proxy/registrar", "", ""},
		{registry.KindEndpointSlice, "kube-proxy/weight", "", ""},
		{registry.KindEndpointSlice, "kube-proxy/colour", "", "annotation kube-proxy/colour is unknown: this release has kube-proxy/weight, kube-proxy/zone, kube-proxy/backup, kube-proxy/names and kube-proxy/registrar"},
		{registry.KindEndpoints, "kube-proxy/names", "", ""},
		{registry.KindService, "kube-proxy/names", "", "annotation kube-proxy/names has no effect in Service: it counts in Endpoints and EndpointSlice"},

		{registry.KindService, "service.beta.kubernetes.io/load-balancer-source-range", "annotation service.beta.kubernetes.io/load-balancer-source-range has no effect: did you mean service.beta.kubernetes.io/load-balancer-source-ranges?", ""},
		{registry.KindService, "service.kubernetes.io/load-balancer-source-range", "annotation service.kubernetes.io/load-balancer-source-range has no effect: did you mean service.beta.kubernetes.io/load-balancer-source-ranges?", ""},
		{registry.KindService, "haproxy.com/check", "annotation haproxy.com/check has no effect: did you mean haproxy.org/check?", ""},
		{registry.KindService, "haproxy.org/chekc", "annotation haproxy.org/chekc has no effect: did you mean haproxy.org/check?", ""},
		{registry.KindService, "kubeproxy/check-udp", "annotation kubeproxy/check-udp has no effect: did you mean kube-proxy/check-udp?", ""},
		{registry.KindEndpoints, "haproxy.org/check", "annotation haproxy.org/check has no effect in Endpoints: it counts in Service", ""},
		{registry.KindEndpoints, "haproxy.org/checks", "annotation haproxy.org/checks has no effect: haproxy.org/check, which it resembles, counts in Service", ""},

		{registry.KindService, "haproxy.org/timeout-client", "", ""},
		{registry.KindService, "haproxy.org/timeout-server", "", ""},
		{registry.KindService, "haproxy.org/cookie-persistence", "", ""},
		{registry.KindService, "nginx.ingress.kubernetes.io/load-balance", "", ""},
		{registry.KindService, "service.beta.kubernetes.io/aws-load-balancer-source-ranges", "", ""},
		{registry.KindService, "service.beta.kubernetes.io/azure-load-balancer-internal", "", ""},
		{registry.KindService, "kubectl.kubernetes.io/last-applied-configuration", "", ""},
		{registry.KindService, "check", "", ""},
		{registry.KindEndpoints, "endpoints.kubernetes.io/last-change-trigger-time", "", ""},
		{registry.KindEndpoints, "control-plane.alpha.kubernetes.io/leader", "", ""},
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
		a.Counts(registry.KindService, fmt.Appendf(nil, "haproxy.org/chec%c", 'l'+i%2))
	}
	if len(a.Warnings) > maxJudged {
		t.Errorf("%d names were compared", len(a.Warnings))
	}
	if a.Counts(registry.KindService, []byte("kube-proxy/chek-udp")); a.Err == nil {
		t.Error("a misspelt name of ours passes")
	}
}
