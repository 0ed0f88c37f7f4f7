package decode

import (
	"testing"

	"kubeproxy/registry"
)

func TestTheProxyHeaderOfAService(t *testing.T) {
	const noDatagrams = "annotation haproxy.org/send-proxy-protocol: only proxy-v2 has a form for datagrams, so UDP ports send no header"
	for _, c := range []struct {
		name, annotations, protocol string
		want                        registry.ProxyHeader
		warning, err                string
	}{
		{"none", `{}`, "TCP", registry.NoProxyHeader, "", ""},
		{"the first version", `{"haproxy.org/send-proxy-protocol":"proxy"}`, "TCP", registry.ProxyV1, "", ""},
		{"the first version by its number", `{"haproxy.org/send-proxy-protocol":"proxy-v1"}`, "TCP", registry.ProxyV1, "", ""},
		{"the second version", `{"haproxy.org/send-proxy-protocol":"proxy-v2"}`, "udp", registry.ProxyV2, "", ""},
		{"the first version for datagrams", `{"haproxy.org/send-proxy-protocol":"proxy-v1"}`, "udp", registry.ProxyV1, noDatagrams, ""},
		{"with TLS", `{"haproxy.org/send-proxy-protocol":"proxy-v2-ssl"}`, "TCP", 0, "", `annotation haproxy.org/send-proxy-protocol: unknown version "proxy-v2-ssl": want proxy, proxy-v1 or proxy-v2`},
		{"empty", `{"haproxy.org/send-proxy-protocol":""}`, "TCP", 0, "", `annotation haproxy.org/send-proxy-protocol: unknown version "": want proxy, proxy-v1 or proxy-v2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, value := range []string{`{"port":80,"protocol":"` + c.protocol + `","annotations":` + c.annotations + `}`,
				`{"apiVersion":"v1","metadata":{"annotations":` + c.annotations + `},"spec":{"ports":[{"port":80,"protocol":"` + c.protocol + `"}]}}`} {
				r, warnings, err := Decode(specKey, []byte(value))
				switch {
				case err != nil || c.err != "":
					if err == nil || err.Error() != c.err {
						t.Errorf("error %v; want %q", err, c.err)
					}
				case r.Service.Terms().ProxyHeader != c.want || r.Service.Terms().Check() != nil:
					t.Errorf("version %v (%v); want %v", r.Service.Terms().ProxyHeader, r.Service.Terms().Check(), c.want)
				case (c.warning == "") != (len(warnings) == 0) || len(warnings) > 0 && string(warnings[0]) != c.warning:
					t.Errorf("warnings %q; want %q", warnings, c.warning)
				}
			}
		})
	}
}
