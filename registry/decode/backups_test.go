package decode

import (
	"strings"
	"testing"

	"kubeproxy/registry"
)

// TestTheBackupsOfARecord: the annotation counts beside what else the record says of its endpoints.
func TestTheBackupsOfARecord(t *testing.T) {
	for _, c := range []struct {
		key, value string
		want       registry.Places // of the first port
		err        string
	}{
		{registry.EndpointsPrefix + "web", `{"endpoints":["10.0.0.1:80","10.0.0.2:80"],"annotations":{"kube-proxy/backup":"10.0.0.2"}}`, "\x00\x80", ""},
		{registry.EndpointsPrefix + "web", `{"kind":"Endpoints","apiVersion":"v1","metadata":{"annotations":{"kube-proxy/backup":"10.0.0.1:80"}},
			"subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":80}]}]}`, "\x80\x00", ""},
		{registry.EndpointSlicesPrefix + "default/web-1", `{"metadata":{"labels":{"kubernetes.io/service-name":"web"},"annotations":{"kube-proxy/backup":"true"}},"addressType":"IPv4",
			"endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.2"]}],"ports":[{"port":80}]}`, "\x80\x80", ""},
		{registry.EndpointsPrefix + "web", `{"endpoints":["10.0.0.1:80"],"annotations":{"kube-proxy/backup":""}}`, "", "annotation kube-proxy/backup: \"\" is no address"},
		{registry.EndpointsPrefix + "web", `{"endpoints":["10.0.0.1:80"],"annotations":{"kube-proxy/backups":"10.0.0.1"}}`, "", "did you mean kube-proxy/backup?"},
		{registry.SpecsPrefix + "web", `{"port":80,"annotations":{"kube-proxy/backup":"10.0.0.1"}}`, "", "it counts in Endpoints and EndpointSlice"},
	} {
		r, _, err := Decode(c.key, []byte(c.value))
		if c.err != "" {
			if err == nil || !strings.Contains(err.Error(), c.err) {
				t.Errorf("%s: error %v; want %s", c.value, err, c.err)
			}
			continue
		}
		var byPort []registry.PortAddrs
		switch {
		case err != nil:
		case r.Endpoints != nil:
			byPort = r.Endpoints.ByPort
		case r.Slice != nil:
			byPort = r.Slice.Ready
		}
		if len(byPort) != 1 || byPort[0].Places != c.want {
			t.Errorf("%s: %v, %v; want %v", c.value, byPort, err, []byte(c.want))
		}
	}
}
