package decode

import (
	"strings"
	"testing"
)

// In either encoding a misspelt annotation of ours refuses the record, unless the record is none for this proxy.
func TestAMisspeltAnnotationOfOursRefusesTheRecord(t *testing.T) {
	const service, slice = "/registry/services/specs/shop/web", "/registry/services/endpointslices/shop/web-1"
	spec := func(annotation, label string) []byte {
		w, meta, of, port := newTwin(), newTwin(), newTwin(), newTwin()
		w.kind, w.version = "Service", "v1"
		meta.entry(12, "annotations", annotation, "x")
		if label != "" {
			meta.entry(11, "labels", label, "x")
		}
		port.number(3, "port", 80)
		of.add(1, "ports", port)
		w.message(1, "metadata", meta)
		w.message(2, "spec", of)
		return w.inProtobuf()
	}
	const ours, near = "annotation kube-proxy/chek-udp has no effect: did you mean kube-proxy/check-udp?", "annotation haproxy.org/chek has no effect: did you mean haproxy.org/check?"
	for _, c := range []struct {
		name, key    string
		value        []byte
		err, warning string
	}{
		{"JSON, flat", service, []byte(`{"port":80,"annotations":{"kube-proxy/chek-udp":7}}`), ours, ""},
		{"JSON, nested", service, []byte(`{"apiVersion":"v1","metadata":{"annotations":{"kube-proxy/chek-udp":"x"}},"spec":{"ports":[{"port":80}]}}`), ours, ""},
		{"JSON, near", service, []byte(`{"port":80,"annotations":{"haproxy.org/chek":"true"}}`), "", near},
		{"JSON, escaped", service, []byte(`{"port":80,"annotations":{"kube\u002dproxy/chek-udp":"x"}}`), ours, ""},
		{"protobuf", service, spec("kube-proxy/chek-udp", ""), ours, ""},
		{"protobuf, near", service, spec("haproxy.org/chek", ""), "", near},
		{"JSON, for another proxy", service, []byte(`{"apiVersion":"v1","metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"x"},"annotations":{"kube-proxy/chek-udp":"x"}},"spec":{"ports":[{"port":80}]}}`), "", ""},
		{"protobuf, for another proxy", service, spec("kube-proxy/chek-udp", "service.kubernetes.io/service-proxy-name"), "", ""},
		{"slice", slice, []byte(`{"addressType":"IPv4","metadata":{"labels":{"kubernetes.io/service-name":"web"},"annotations":{"kube-proxy/colour":"1"}}}`),
			"annotation kube-proxy/colour is unknown: this release has kube-proxy/weight, kube-proxy/zone, kube-proxy/backup, kube-proxy/names and kube-proxy/registrar", ""},
		{"null is no value", service, []byte(`{"port":80,"annotations":{"haproxy.org/check":null}}`), "", ""},
	} {
		_, warnings, err := Decode(c.key, c.value)
		var said []string
		for _, w := range warnings {
			if w := string(w); strings.HasPrefix(w, "annotation ") {
				said = append(said, w)
			}
		}
		if text := strings.Join(said, "; "); text != c.warning || err == nil && c.err != "" || err != nil && err.Error() != c.err {
			t.Errorf("%s: error %v, warnings %q; want %q and %q", c.name, err, text, c.err, c.warning)
		}
	}
}
