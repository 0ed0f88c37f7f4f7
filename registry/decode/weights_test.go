package decode

import (
	"testing"

	"kubeproxy/registry"
)

func TestTheWeightsOfARecord(t *testing.T) {
	const annotations = `"annotations":{"kube-proxy/weight":"10.1.2.3=5","other":7}`
	for _, c := range []struct{ name, key, value, want, err string }{
		{"flat", "/registry/services/endpoints/web", `{"endpoints":["10.1.2.3:8080"],` + annotations + `}`, "10.1.2.3=5", ""},
		{"nested", "/registry/services/endpoints/web", `{"apiVersion":"v1","metadata":{` + annotations + `},"subsets":[{"addresses":[{"ip":"10.1.2.3"}],"ports":[{"port":80}]}]}`, "10.1.2.3=5", ""},
		{"for all", "/registry/services/endpoints/web", `{"endpoints":["10.1.2.3:8080","10.1.2.4:80"],"annotations":{"kube-proxy/weight":"0"}}`, "10.1.2.3:8080=0,10.1.2.4:80=0", ""},
		{"by port", "/registry/services/endpoints/web", `{"endpoints":["10.1.2.3:8080","10.1.2.3:8081","[fd00::3]:80"],"annotations":{"kube-proxy/weight":"10.1.2.3:8081=0, [fd00::3]:80=9"}}`, "10.1.2.3:8081=0,[fd00::3]:80=9", ""},
		{"none", "/registry/services/endpoints/web", `{"endpoints":["10.1.2.3:8080"]}`, "", ""},
		{"bad", "/registry/services/endpoints/web", `{"endpoints":["10.1.2.3:8080"],"annotations":{"kube-proxy/weight":"heavy"}}`, "", `annotation kube-proxy/weight: "heavy" is no weight from 0 to 256`},
		{"no text", "/registry/services/endpoints/web", `{"endpoints":["10.1.2.3:8080"],"annotations":{"kube-proxy/weight":5}}`, "", `annotations.kube-proxy/weight holds a number where a string is wanted`},
		{"slice", "/registry/services/endpointslices/shop/cart-1", `{"addressType":"IPv4","metadata":{"labels":{"kubernetes.io/service-name":"cart"},"annotations":{"kube-proxy/weight":"7"}},
			"endpoints":[{"addresses":["10.1.2.3"]},{"addresses":["10.1.2.4"],"conditions":{"ready":false,"serving":true,"terminating":true}}],"ports":[{"port":80}]}`, "10.1.2.3:80=7,10.1.2.4:80=7", ""},
	} {
		r, _, err := Decode(c.key, []byte(c.value))
		if err != nil || c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: error %v; want %q", c.name, err, c.err)
			}
			continue
		}
		var got registry.Weights
		if r.Slice != nil {
			got = r.Slice.Weights
		} else {
			got = r.Endpoints.Weights
		}
		if string(got) != c.want {
			t.Errorf("%s: weights %q; want %q", c.name, got, c.want)
		}
	}
}
