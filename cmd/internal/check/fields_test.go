package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

func TestFieldsThatNoVersionHasAreWarnedOf(t *testing.T) {
	const unknown = "warning unknown-field: unknown in this version, and ignored: "
	const mistyped = "error mistyped-field: the record offers nothing, and these fields are unknown in this version, and ignored: "
	for _, c := range []struct{ name, key, value, want string }{
		{"endpoints misspelled", "endpoints/web", `{"endpoint":["10.0.0.1:80"]}`, mistyped + `"endpoint" (did you mean endpoints?)`},
		{"endpoints by a name of one's own", "endpoints/web", `{"backends":["10.0.0.1:80"]}`, mistyped + `"backends"`},
		{"addresses misspelled", "endpoints/web", `{"apiVersion":"v1","subsets":[{"adresses":[{"ip":"10.0.0.1"}],"ports":[{"port":80}]}]}`,
			mistyped + `"subsets.adresses" (did you mean addresses?)`},
		{"no endpoints, and a field of later days", "endpoints/web", `{"apiVersion":"v1","metadata":{"name":"web","lables":{}},"subsets":[],"zebra":1}`,
			unknown + `"metadata.lables" (did you mean labels?), "zebra"`},
		{"affinity misspelled", "specs/web", `{"port":80,"sessionAfinity":"ClientIP"}`, unknown + `"sessionAfinity" (did you mean sessionAffinity?)`},
		{"letters exchanged", "specs/web", `{"apiVersion":"v1","spec":{"prots":[{"port":80}],"port":80}}`, unknown + `"spec.prots" (did you mean ports?)`},
		{"in each element of a list, once", "specs/web", `{"apiVersion":"v1","spec":{"ports":[{"port":80,"portocol":"UDP"},{"port":81,"portocol":"UDP"}]}}`,
			unknown + `"spec.ports.portocol" (did you mean protocol?)`},
		{"deep", "endpoints/web", `{"apiVersion":"v1","subsets":[{"addresses":[{"ip":"10.0.0.1","adress":1}],"ports":[{"port":80}]}]}`, unknown + `"subsets.addresses.adress"`},
		{"resembles nothing", "specs/web", `{"port":80,"color":"red"}`, unknown + `"color"`},
		{"the fields of another version", "specs/web", `{"metadata":{"name":"web"},"spec":{"port":80},"port":80}`,
			unknown + `"metadata" (a field of other versions: see apiVersion), "spec" (a field of other versions: see apiVersion)`},
		{"many", "specs/web", `{"port":80,"a":1,"b":2,"c":3,"d":4,"e":5}`, unknown + `"a", "b", "c" and 2 more`},
		{"in a record that cannot be used", "specs/web", `{"prot":80}`, unknown + `"prot" (did you mean port?)`},
		{"long and unprintable", "specs/web", `{"port":80,"` + strings.Repeat(`\n`, 500) + `":1}`, unknown + `"` + strings.Repeat(`\n`, 100) + `"… (500 bytes)`},
		{"a node port misspelled, which is not asked for", "specs/web", `{"apiVersion":"v1","spec":{"ports":[{"port":80,"nodePrt":30080}]}}`,
			unknown + `"spec.ports.nodePrt" (did you mean nodePort?)`},
		{"of a slice", "endpointslices/a/b", `{"metadata":{"labels":{"kubernetes.io/service-name":"x"}},"addressType":"IPv4","endpoints":[{"address":["10.0.0.1"],"conditions":{"redy":true}}],"port":[]}`,
			mistyped + `"endpoints.address" (did you mean addresses?), "endpoints.conditions.redy" (did you mean ready?), "port" (did you mean ports?)`},
		{"in another letter case, which is no mistake", "specs/web", `{"Port":80,"SESSIONAFFINITY":"None"}`, ""},
		{"labels and annotations are free", "specs/web", `{"apiVersion":"v1","metadata":{"labels":{"x":"y"},"annotations":{"x":"y"}},"spec":{"port":80,"selector":{"x":"y"}}}`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, line := range strings.Split(findings(Examine(stored(c.key, c.value), Options{})), "\n") {
				if strings.Contains(line, string(UnknownField)) || strings.Contains(line, string(MistypedField)) {
					got = append(got, strings.TrimPrefix(line, c.key+": "))
				}
			}
			if got := strings.Join(got, "\n"); got != c.want {
				t.Errorf("found %s\nwant  %s", got, c.want)
			}
		})
	}
}

// A misspelled annotation leaves a service open, or without checks: with our own prefix it is an error.
func TestAnnotationsWithoutAnEffectAreToldOf(t *testing.T) {
	const odd, bad = "warning odd-record: annotation ", "error bad-record: annotation "
	for _, c := range []struct{ name, key, value, want string }{
		{"near one that counts", "specs/web", `{"port":80,"annotations":{"haproxy.org/check_http":"/"}}`, odd + "haproxy.org/check_http has no effect: did you mean haproxy.org/check-http?"},
		{"near one of ours", "endpoints/web", `{"endpoints":["10.0.0.1:80"],"annotations":{"kube-proxy/wieght":"0"}}`, bad + "kube-proxy/wieght has no effect: did you mean kube-proxy/weight?"},
		{"those that count", "specs/web", `{"port":80,"annotations":{"haproxy.org/check":"true","haproxy.org/timeout-check":"1s"}}`, ""},
		{"that of a registrar", "endpointslices/shop/web-1", `{"metadata":{"labels":{"kubernetes.io/service-name":"web"},"annotations":{"kube-proxy/registrar":"X","kube-proxy/weight":"3"}},"addressType":"IPv4"}`, ""},
	} {
		var got string
		for line := range strings.Lines(findings(Examine(stored(c.key, c.value), Options{}))) {
			if strings.Contains(line, " annotation ") {
				got += strings.TrimSpace(strings.TrimPrefix(line, c.key+": "))
			}
		}
		if got != c.want {
			t.Errorf("%s: found %s\nwant %s", c.name, got, c.want)
		}
	}
}

func TestAStrictCheckFailsForAWarning(t *testing.T) {
	for _, c := range []struct {
		r              Registry
		failed, strict bool
	}{
		{stored("specs/web", `{"port":8000}`, "endpoints/web", `{"endpoints":["10.0.0.1:80"]}`), false, false},
		{stored("specs/web", `{"port":8000}`), false, true},
		{stored(), false, true}, // of the whole
		{stored("specs/web", `{}`), true, true},
	} {
		report := Examine(c.r, Options{})
		if report.Failed(false) != c.failed || report.Failed(true) != c.strict {
			t.Errorf("failed %t, and strictly %t; want %t and %t:\n%s", report.Failed(false), report.Failed(true), c.failed, c.strict, findings(report))
		}
	}
}

func TestANodePortThatIsMisspelledWhereItCountsIsAnError(t *testing.T) {
	text := findings(Examine(stored("specs/web", `{"apiVersion":"v1","spec":{"ports":[{"port":80,"nodePrt":30080}]}}`), Options{Decoder: decode.Decoder{NodePorts: true}}))
	if want := `error mistyped-field: the record offers nothing, and these fields are unknown in this version, and ignored: "spec.ports.nodePrt" (did you mean nodePort?)`; !strings.Contains(text, want) {
		t.Errorf("found %s\nwant  %s", text, want)
	}
}

// Fields that Kubernetes has and the proxy does not read are known.
func TestRecordsThatKubernetesWroteHaveNoUnknownFields(t *testing.T) {
	const testdata = "../../../registry/decode/testdata"
	fixtures, err := os.ReadFile(filepath.Join(testdata, "fixtures", "expectations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected []struct{ File, Key string }
	if err := json.Unmarshal(fixtures, &expected); err != nil {
		t.Fatal(err)
	}
	type file struct{ path, key string }
	var files []file
	for _, f := range expected {
		switch { // what Kubernetes did not write
		case strings.HasPrefix(f.File, "bad-"), f.File == "endpoints-kind-service.json", f.File == "service-unknown-fields.json":
		default:
			files = append(files, file{filepath.Join(testdata, "fixtures", f.File), f.Key})
		}
	}
	captured, err := filepath.Glob(filepath.Join(testdata, "captured", "values", "*.json"))
	if err != nil || len(captured) == 0 || len(files) == 0 {
		t.Fatalf("%d fixtures, %d captured records, %v", len(files), len(captured), err)
	}
	for _, path := range captured {
		key := registry.SpecsPrefix + "x"
		if strings.Contains(filepath.Base(path), "-endpoints-") {
			key = registry.EndpointsPrefix + "x"
		}
		files = append(files, file{path, key})
	}
	later, err := filepath.Glob(filepath.Join(testdata, "captured", "kubernetes-1.36", "json", "*.json"))
	if err != nil || len(later) == 0 {
		t.Fatalf("%d records of 1.36, %v", len(later), err)
	}
	for _, path := range later {
		key := strings.ReplaceAll(strings.TrimSuffix(filepath.Base(path), ".json"), "--", "/")
		files = append(files, file{path, registry.Prefix + strings.TrimPrefix(key, "services/")})
	}
	for _, f := range files {
		value, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range Examine(Registry{Records: []Record{{Key: f.key, Value: value}}}, Options{}).Records {
			for _, found := range v.Findings {
				if found.Code == UnknownField || found.Code == MistypedField {
					t.Errorf("%s: %s", filepath.Base(f.path), found.Text)
				}
			}
		}
	}
}
