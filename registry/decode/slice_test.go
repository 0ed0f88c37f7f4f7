package decode

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// slice is the record of a slice of a service, with some fields.
func slice(service, fields string) string {
	return `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"x-1","labels":{"kubernetes.io/service-name":"` + service + `"}},` + fields + `}`
}

// sliceSeeds are the slices that Kubernetes has stored as JSON, for a fuzzer.
func sliceSeeds(t testing.TB) (values [][]byte) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("testdata", "captured", "kubernetes-1.36", "json*", "endpointslices--*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured slices: %v", err)
	}
	for _, file := range files {
		value, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	return append(values, []byte(slice("x", `"addressType":"FQDN","endpoints":[{"addresses":["web"]}],"ports":[{"name":"a","port":1},{"name":"a","port":2}]`)))
}

func TestEndpointsOfASlice(t *testing.T) {
	const ports = `"ports":[{"name":"","protocol":"TCP","port":80}]`
	for _, c := range []struct{ name, fields, want string }{
		{"two, sorted", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.1"]}],` + ports, "of x /[10.0.0.1:80 10.0.0.2:80]"},
		{"the same one twice", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["10.0.0.1"]}],` + ports, "of x /[10.0.0.1:80]"},
		{"null", `"addressType":"IPv4","endpoints":null,"ports":null`, "of x"},
		{"neither field", `"addressType":"IPv4"`, "of x"},
		{"endpoints without ports", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[]`, "of x"},
		{"IPv6", `"addressType":"IPv6","endpoints":[{"addresses":["fd00::2"]}],` + ports, "of x /[[fd00::2]:80]"},
		{"host names", `"addressType":"FQDN","endpoints":[{"addresses":["web.example"]}],` + ports, "of x /[web.example:80]"},
		{"addresses of 1.16", `"addressType":"IP","endpoints":[{"addresses":["fd00::2"]},{"addresses":["10.0.0.1"]}],` + ports, "of x /[10.0.0.1:80 [fd00::2]:80]"},
		{"each with each, by name", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.2"]},{"addresses":["10.0.0.1"]}],
			"ports":[{"name":"b","port":2},{"name":"a","port":1},{"name":"b","port":1},{"name":"b","port":2}]`,
			"of x a/[10.0.0.1:1 10.0.0.2:1] b/[10.0.0.1:1 10.0.0.1:2 10.0.0.2:1 10.0.0.2:2]"},
		{"conditions", `"addressType":"IPv4","endpoints":[
			{"addresses":["10.0.0.1"],"conditions":{"ready":true,"serving":true,"terminating":false}},
			{"addresses":["10.0.0.2"],"conditions":{"ready":false,"serving":true,"terminating":true}},
			{"addresses":["10.0.0.3"],"conditions":{"ready":false,"serving":false,"terminating":true}},
			{"addresses":["10.0.0.4"],"conditions":{"ready":false,"serving":true,"terminating":false}},
			{"addresses":["10.0.0.5"],"conditions":{"ready":false}},
			{"addresses":["10.0.0.6"],"conditions":{"ready":false,"terminating":true}},
			{"addresses":["10.0.0.7"],"conditions":{"ready":true,"serving":false,"terminating":true}},
			{"addresses":["10.0.0.8"],"conditions":{}},
			{"addresses":["10.0.0.9"],"conditions":null}],` + ports,
			"of x /[10.0.0.1:80 10.0.0.7:80 10.0.0.8:80 10.0.0.9:80] terminating /[10.0.0.2:80 10.0.0.6:80]"},
		{"repeated fields", `"addressType":"IPv6","addressType":"IPv4","endpoints":[{"addresses":["10.0.0.9"]}],"endpoints":[
			{"addresses":["a"],"addresses":["10.0.0.1"],"conditions":{"ready":false},"conditions":{"terminating":true}}],` + ports, "of x /[10.0.0.1:80]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, sliceKey, slice("x", c.fields))
			if warnings != "" || r.Dropped != 0 {
				t.Errorf("%d dropped, warnings %q", r.Dropped, warnings)
			}
			if got := summary(r); got != "EndpointSlice x-1: "+c.want {
				t.Errorf("%s\n got %s\nwant EndpointSlice x-1: %s", c.fields, got, c.want)
			}
		})
	}
}

func TestUnusableEntriesOfASliceCostOnlyThemselves(t *testing.T) {
	for _, c := range []struct {
		name, fields string
		dropped      int
		kept, said   string
	}{
		{"another family", `"addressType":"IPv4","endpoints":[{"addresses":["fd00::1"]},{"addresses":["10.0.0.1"]}],"ports":[{"port":80}]`, 1,
			"/[10.0.0.1:80]", `unusable endpoint left out: "fd00::1" (not an IPv4 address)`},
		{"and the other way", `"addressType":"IPv6","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["fd00::1"]},{"addresses":["web"]}],"ports":[{"port":80}]`, 2,
			"/[[fd00::1]:80]", `2 unusable endpoints left out: "10.0.0.1" (not an IPv6 address), "web" (not an IPv6 address)`},
		{"neither name nor address", `"addressType":"FQDN","endpoints":[{"addresses":["10.0.0.1"]},{"addresses":["-"]},{"addresses":[]},{}],"ports":[{"port":80}]`, 4,
			"", `4 unusable endpoints left out, among them "10.0.0.1" (not a host name), "-" (neither an address nor a host name), "" (no address)`},
		{"nobody asks what is not ready", `"addressType":"IPv4","endpoints":[{"addresses":["-"],"conditions":{"ready":false}}],"ports":[{"port":80}]`, 0, "", ""},
		{"a port for all ports", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a"},{"name":"b","port":1}]`, 1,
			"b/[10.0.0.1:1]", `unusable endpoint left out: "a" (no port number)`},
		{"an unknown protocol", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a","port":1,"protocol":"QUIC"},{"name":"b","port":1,"protocol":"udp"}]`, 1,
			"b/[10.0.0.1:1]", `unusable endpoint left out: "a" (unsupported protocol "QUIC")`},
		{"SCTP", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"]}],"ports":[{"name":"a","port":1,"protocol":"SCTP"},{"name":"b","port":1}]`, 0,
			"b/[10.0.0.1:1]", `SCTP is not supported, and these ports are left out: 1`},
		{"more addresses than one", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1","10.0.0.2","10.0.0.3"]}],"ports":[{"port":80}]`, 0,
			"/[10.0.0.1:80]", `addresses beyond the first of their endpoint are ignored: 2`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, sliceKey, slice("x", c.fields))
			if r.Dropped != c.dropped || warnings != c.said {
				t.Errorf("%d dropped: %s\nwant %d: %s", r.Dropped, warnings, c.dropped, c.said)
			}
			if got, want := summary(r), strings.TrimSuffix("EndpointSlice x-1: of x "+c.kept, " "); got != want {
				t.Errorf(" got %s\nwant %s", got, want)
			}
		})
	}
}

// Kubernetes' own proxy selects by these labels, too.
func TestLabelsExcludeServicesAndSlicesFromTheProxy(t *testing.T) {
	for _, c := range []struct{ name, key, value, want string }{
		{"service of another proxy", specKey, `{"apiVersion":"v1","metadata":{"labels":{"service.kubernetes.io/service-proxy-name":"other"}},"spec":{"ports":[{"port":80}]}}`,
			"Service x: affinity None"},
		{"flat", specKey, `{"labels":{"a":"b","service.kubernetes.io\/service-proxy-name":null},"port":80}`, "Service x: affinity None"},
		{"in another letter case", specKey, `{"labels":{"Service.kubernetes.io/service-proxy-name":""},"port":80}`, "Service x: /tcp/80 affinity None"},
		{"in the other form", specKey, `{"metadata":{"labels":{"service.kubernetes.io/service-proxy-name":""}},"port":80}`, "Service x: /tcp/80 affinity None"},
		{"labels that are none", specKey, `{"labels":["service.kubernetes.io/service-proxy-name"],"port":80}`, "Service x: /tcp/80 affinity None"},
		{"slice of another proxy", sliceKey, `{"metadata":{"labels":{"kubernetes.io/service-name":"x","service.kubernetes.io/service-proxy-name":""}},"addressType":"?"}`,
			"EndpointSlice x-1: of "},
		{"slice of a headless service", sliceKey, `{"metadata":{"labels":{"service.kubernetes.io/headless":""}},"endpoints":5}`, "EndpointSlice x-1: of "},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, warnings := decodeTo(t, c.key, c.value); summary(r) != c.want || warnings != "" {
				t.Errorf("%s\n got %s\nwant %s, warnings %q", c.value, summary(r), c.want, warnings)
			}
		})
	}
}
