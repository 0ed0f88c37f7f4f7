package decode

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/registry"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A fixture is a record, and what is wanted of it: one entry of expectations.json.
type fixture struct {
	File string `json:"file"`
	Key  string `json:"key"`
	Want struct {
		Result    string `json:"result"` // accept, reject, skip (valid, nothing to serve), either
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		Ports     []struct {
			Name     string `json:"name"`
			Protocol string `json:"protocol"`
			Port     uint16 `json:"port"`
		} `json:"ports"`
		SessionAffinity string              `json:"sessionAffinity"`
		Endpoints       map[string][]string `json:"endpoints"`
		EndpointCount   *int                `json:"endpointCount"`
		Dropped         int                 `json:"dropped"`
		Warn            string              `json:"warn"`
	} `json:"want"`
}

// value reads the record itself.
func (f fixture) value(t testing.TB) []byte {
	t.Helper()
	value, err := os.ReadFile(filepath.Join("testdata", "fixtures", f.File))
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// fixtures reads expectations.json.
func fixtures(t testing.TB) []fixture {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "fixtures", "expectations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var fs []fixture
	if err := json.Unmarshal(data, &fs); err != nil {
		t.Fatal(err)
	}
	if len(fs) == 0 {
		t.Fatal("expectations.json is empty")
	}
	return fs
}

func TestFixturesDecodeAsExpected(t *testing.T) {
	for _, f := range fixtures(t) {
		t.Run(f.File, func(t *testing.T) {
			r, warnings, err := Decode(f.Key, f.value(t))
			checkAnswer(t, r, warnings, err)
			switch f.Want.Result {
			case "reject":
				if err == nil {
					t.Fatalf("accepted: %s", summary(r))
				}
				return
			case "either": // both are about what package json tolerates, and so do we
			case "accept", "skip":
			default:
				t.Fatalf("unknown result %q", f.Want.Result)
			}
			if err != nil {
				t.Fatal(err)
			}
			if f.Want.Result != "either" {
				f.check(t, r)
			}
			contradictions := 0
			for _, w := range warnings {
				if strings.Contains(string(w), "the key counts") {
					contradictions++
				}
			}
			want := 0
			if strings.HasPrefix(f.Want.Warn, "body id differs from key") {
				want = 1
			}
			if contradictions != want {
				t.Errorf("warnings %q: %d of them about the body's name, want %d", warnings, contradictions, want)
			}
		})
	}
}

// check compares an accepted record with what is wanted.
func (f fixture) check(t *testing.T, r Record) {
	t.Helper()
	name := registry.Name{Namespace: f.Want.Namespace, Name: f.Want.Name}
	if r.Key.Name != name {
		t.Errorf("name of the key is %v, want %v", r.Key.Name, name)
	}
	if r.Dropped != f.Want.Dropped {
		t.Errorf("%d entries dropped, want %d", r.Dropped, f.Want.Dropped)
	}
	if r.Service != nil {
		want := &registry.Service{Name: name}
		for _, p := range f.Want.Ports {
			protocol := map[string]registry.Protocol{"TCP": registry.TCP, "UDP": registry.UDP}[p.Protocol]
			want.Ports = append(want.Ports, registry.Port{Name: p.Name, Protocol: protocol, Number: p.Port})
		}
		if f.Want.SessionAffinity == "ClientIP" {
			want.Asked = &registry.Terms{Affinity: registry.AffinityClientIP, AffinityTimeout: 3 * time.Hour}
		}
		if diff := cmp.Diff(want, r.Service, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
			t.Errorf("service (-want +got):\n%s", diff)
		}
		return
	}
	if r.Endpoints.Name != name {
		t.Errorf("name of the endpoints is %v, want %v", r.Endpoints.Name, name)
	}
	if f.Want.EndpointCount != nil {
		count := 0
		for _, p := range r.Endpoints.ByPort {
			count += p.Addrs.Len()
		}
		if count != *f.Want.EndpointCount {
			t.Errorf("%d endpoints, want %d", count, *f.Want.EndpointCount)
		}
		return
	}
	got := make(map[string][]string)
	for _, p := range r.Endpoints.ByPort {
		for a := range p.Addrs.All() {
			got[p.Port] = append(got[p.Port], a.String())
		}
	}
	if diff := cmp.Diff(f.Want.Endpoints, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
}

// checkAnswer holds the answer of Decode to the promises of the package that are the same for
// every record.
func checkAnswer(t testing.TB, r Record, warnings []registry.Warning, err error) {
	t.Helper()
	if err != nil {
		checkLine(t, err.Error())
		if len(warnings) > 0 || r != (Record{}) {
			t.Errorf("error %q comes with warnings %q and record %v", err, warnings, r)
		}
		return
	}
	for _, w := range warnings {
		checkLine(t, string(w))
	}
	if kinds := []bool{r.Service != nil, r.Endpoints != nil, r.Slice != nil}; !slices.Equal(kinds,
		[]bool{r.Key.Kind == registry.KindService, r.Key.Kind == registry.KindEndpoints, r.Key.Kind == registry.KindEndpointSlice}) {
		t.Fatalf("record is not exactly one of service, endpoints and slice, by its kind: %+v", r)
	}
	switch {
	case r.Service != nil:
		if r.Key.Kind != registry.KindService || r.Service.Name != r.Key.Name || r.Dropped != 0 {
			t.Errorf("service %v does not fit key %v, %d dropped", r.Service.Name, r.Key, r.Dropped)
		}
		checkPorts(t, r.Service.Ports)
		checkRanges(t, r.Service.Terms().SourceRanges)
		if a, timeout := r.Service.Terms().Affinity, r.Service.Terms().AffinityTimeout; (a == registry.AffinityNone) != (timeout == 0) || timeout < 0 || timeout > 24*time.Hour {
			t.Errorf("affinity %v for %v", a, timeout)
		}
	case r.Endpoints != nil:
		if r.Endpoints.Name != r.Key.Name {
			t.Errorf("endpoints %v do not fit key %v", r.Endpoints.Name, r.Key)
		}
		checkByPort(t, r.Endpoints.ByPort)
	case r.Slice != nil:
		s := r.Slice
		if s.Name != r.Key.Name || s.ServiceName().Namespace != r.Key.Name.Namespace || s.Service == "" && (s.Ready != nil || s.Terminating != nil) {
			t.Errorf("slice %+v does not fit key %v", s, r.Key)
		}
		for _, byPort := range [][]registry.PortAddrs{s.Ready, s.Terminating} {
			checkByPort(t, byPort)
			for _, p := range byPort {
				if !slices.IsSortedFunc(slices.Collect(p.Addrs.All()), registry.Addr.Compare) {
					t.Errorf("not sorted: %v", p.Addrs)
				}
			}
		}
		if ready, terminating := portNames(s.Ready), portNames(s.Terminating); ready != nil && terminating != nil && !slices.Equal(ready, terminating) {
			t.Errorf("ready addresses have the ports %q, terminating ones %q", ready, terminating)
		}
	}
}

func portNames(byPort []registry.PortAddrs) (names []string) {
	for _, p := range byPort {
		names = append(names, p.Port)
	}
	return names
}

func checkByPort(t testing.TB, byPort []registry.PortAddrs) {
	t.Helper()
	if names := portNames(byPort); !slices.IsSorted(names) || len(slices.Compact(names)) != len(byPort) {
		t.Errorf("ports are not sorted, or repeated: %q", names)
	}
	for _, p := range byPort {
		checkAddrs(t, p.Port, slices.Collect(p.Addrs.All()))
	}
}

// checkLine holds a text to the promise for errors, warnings and names.
func checkLine(t testing.TB, s string) {
	t.Helper()
	if s == "" || len(s) > 1000 || !utf8.ValidString(s) || strings.ContainsFunc(s, unprintable) {
		t.Errorf("not one printable line of 1 to 1000 bytes, but %d: %q", len(s), s)
	}
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

func checkPorts(t testing.TB, ports []registry.Port) {
	t.Helper()
	seen := make(map[registry.ListenerID]bool)
	for _, p := range ports {
		s := p.ID()
		if p.Number == 0 || p.Protocol != registry.TCP && p.Protocol != registry.UDP || seen[s] {
			t.Errorf("port %+v is impossible or repeated", p)
		}
		seen[s] = true
	}
}

func checkRanges(t testing.TB, ranges []netip.Prefix) {
	t.Helper()
	for i, r := range ranges {
		if !r.IsValid() || r != r.Masked() || r.Addr().Is4In6() || i > 0 && ranges[i-1].Compare(r) >= 0 {
			t.Errorf("range %v is not in its one form, or not in its place in %v", r, ranges)
		}
	}
	if len(ranges) > registry.MaxSourceRanges || ranges != nil && len(ranges) == 0 {
		t.Errorf("%d ranges", len(ranges))
	}
}

func checkAddrs(t testing.TB, port string, addrs []registry.Addr) {
	t.Helper()
	if len(addrs) == 0 {
		t.Errorf("empty list for port %s", registry.Quote(port))
	}
	if list := registry.NewAddrs(addrs...); list.Len() != len(addrs) || !slices.Equal(slices.Collect(list.All()), addrs) {
		t.Errorf("packed as %d: %v; want %d: %v", list.Len(), list, len(addrs), addrs)
	}
	seen := make(map[registry.Addr]bool, len(addrs))
	for _, a := range addrs {
		if seen[a] {
			t.Errorf("%v is repeated", a)
		}
		seen[a] = true
		checkLine(t, a.String())
		if a.IP.Addr().IsValid() == (a.Host != "") || a.IP.Port() == 0 || a.IP.Addr().IsUnspecified() {
			t.Errorf("%#v cannot be dialled", a)
		}
		if again, err := registry.ParseAddr(a.String()); err != nil || again != a {
			t.Errorf("%q is read back as %v, %v", a.String(), again, err)
		}
	}
}

// summary tells what a record holds, in one line for few endpoints.
func summary(r Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v %v:", r.Key.Kind, r.Key.Name)
	if r.Service != nil {
		for _, p := range r.Service.Ports {
			fmt.Fprintf(&b, " %s/%v/%d", p.Name, p.Protocol, p.Number)
		}
		fmt.Fprintf(&b, " affinity %v", r.Service.Terms().Affinity)
		if len(r.Service.Terms().SourceRanges) > 0 {
			fmt.Fprintf(&b, " for %v", r.Service.Terms().SourceRanges)
		}
		return b.String()
	}
	if s := r.Slice; s != nil {
		fmt.Fprintf(&b, " of %s", s.Service)
		for _, p := range s.Ready {
			fmt.Fprintf(&b, " %s/%v", p.Port, p.Addrs)
		}
		for _, p := range s.Terminating {
			fmt.Fprintf(&b, " terminating %s/%v", p.Port, p.Addrs)
		}
		return b.String()
	}
	for _, p := range r.Endpoints.ByPort {
		fmt.Fprintf(&b, " %s/%v", p.Port, p.Addrs)
	}
	return b.String()
}

// golden compares got with a file in testdata, or writes it there.
func golden(t *testing.T, file, got string) {
	t.Helper()
	path := filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, diff)
	}
}

// The lines are what an operator gets to read, so they are kept where they can be read.
func TestFixturesAreSpokenOfAsInTheGoldenFile(t *testing.T) {
	var b strings.Builder
	for _, f := range fixtures(t) {
		_, warnings, err := Decode(f.Key, f.value(t))
		if err != nil {
			fmt.Fprintf(&b, "%s: record %s: %v\n", f.File, registry.Quote(f.Key), err)
		}
		for _, w := range warnings {
			fmt.Fprintf(&b, "%s: record %s: warning: %s\n", f.File, registry.Quote(f.Key), w)
		}
	}
	golden(t, "messages.golden", b.String())
}

// The values were written by the programs of v0.4.4; the name of a file tells which write it was:
// <version>-<index>-<action>-<kind>-<id>.json.
func TestRecordsWrittenByV04Decode(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "captured", "values", "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no captured values: %v", err)
	}
	slices.Sort(files)
	var b strings.Builder
	for _, path := range files {
		file := filepath.Base(path)
		parts := strings.SplitN(strings.TrimSuffix(file, ".json"), "-", 5)
		key := map[string]string{"service": registry.SpecsPrefix, "endpoints": registry.EndpointsPrefix}[parts[3]] + parts[4]
		value, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		r, warnings, err := Decode(key, value)
		checkAnswer(t, r, warnings, err)
		if err != nil || len(warnings) > 0 {
			t.Errorf("%s: %v, warnings %q", file, err, warnings)
			continue
		}
		fmt.Fprintf(&b, "%s: %s\n", file, summary(r))
	}
	golden(t, filepath.Join("captured", "values.golden"), b.String())
}

const (
	specKey      = registry.SpecsPrefix + "x"
	endpointsKey = registry.EndpointsPrefix + "x"
	sliceKey     = registry.EndpointSlicesPrefix + "default/x-1"
)

func TestErrorsSayWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ name, key, value, want string }{
		{"foreign key", "/registry/pods/x", `{}`, "neither a service spec, nor endpoints, nor an endpoint slice"},
		{"string", specKey, ` "kind" `, "a string where a JSON object is wanted"},
		{"boolean", specKey, `true`, "a boolean where a JSON object is wanted"},
		{"number", specKey, `-1`, "a number where a JSON object is wanted"},
		{"encrypted at rest", specKey, "k8s:enc:aescbc:v1:key1:\x00\x9f", `encrypted at rest, for the API server alone: use -master in place of -etcd_servers`},
		{"almost null", specKey, `nul`, `not JSON: begins with "nul" (YAML and plain text are not accepted)`},
		{"other white space", specKey, "\v", `not JSON: begins with "\v" (YAML and plain text are not accepted)`},
		{"unquoted", specKey, `{kind: Service}`, "not valid JSON: invalid character 'k' looking for beginning of object key string at byte 2"},
		{"kind", specKey, `{"kind":["Service"]}`, "kind holds an array where a string is wanted"},
		{"version", specKey, `{"apiVersion":1,"port":80}`, "apiVersion holds a number where a string is wanted"},
		{"later version", endpointsKey, `{"apiVersion":"discovery.k8s.io/v1"}`, `unknown apiVersion "discovery.k8s.io/v1"`},
		{"namespace", specKey, `{"namespace":{},"port":80}`, "namespace holds an object where a string is wanted"},
		{"metadata", specKey, `{"apiVersion":"v1","metadata":"x"}`, "metadata holds a string where an object is wanted"},
		{"name", specKey, `{"apiVersion":"v1","metadata":{"name":7}}`, "metadata.name holds a number where a string is wanted"},
		{"fraction", specKey, `{"port":80.0}`, `port holds the number "80.0" where a whole number is wanted`},
		{"long number", specKey, `{"port":1` + strings.Repeat("0", 999) + `}`,
			`port holds the number "1` + strings.Repeat("0", 39) + `"… (1000 bytes) where a whole number is wanted`},
		{"port in the list", specKey, `{"apiVersion":"v1","spec":{"ports":[{"port":true}]}}`, "spec.ports.port holds a boolean where a whole number is wanted"},
		{"hole in the list", specKey, `{"ports":[{"port":1},null]}`, "no port number"},
		{"one bad port of two", specKey, `{"ports":[{"port":1},{"port":65536}]}`, "port 65536 is not between 1 and 65535"},
		{"same socket twice", specKey, `{"ports":[{"name":"a","port":53,"protocol":"UDP"},{"name":"b","port":53,"protocol":"udp"}]}`, "udp port 53 is listed twice"},
		{"protocol", specKey, `{"port":1,"protocol":"\n"}`, `unsupported protocol "\n"`},
		{"long port name", specKey, `{"ports":[{"name":"` + strings.Repeat("w", 64) + `","port":1}]}`,
			`port name "` + strings.Repeat("w", 40) + `"… (64 bytes) is longer than 63 bytes`},
		{"long port name, before v0.15", specKey, `{"port":1,"portName":"` + strings.Repeat("w", 1400000) + `"}`,
			`port name "` + strings.Repeat("w", 40) + `"… (1400000 bytes) is longer than 63 bytes`},
		{"long port name of a subset", endpointsKey, `{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"name":"` + strings.Repeat("w", 64) + `","port":1}]}]}`,
			`port name "` + strings.Repeat("w", 40) + `"… (64 bytes) is longer than 63 bytes`},
		{"too many ports", specKey, `{"ports":[{"port":1}` + strings.Repeat(`,{"port":1}`, MaxServicePorts) + `]}`, "1001 ports are listed, more than 1000"},
		{"no spec", specKey, `{"apiVersion":"v1","metadata":{"name":"x"}}`, "no port"},
		{"flat port in a nested record", specKey, `{"apiVersion":"v1","port":80}`, "no port"},
		{"null among strings", endpointsKey, `{"endpoints":["10.0.0.1:80",null]}`, "endpoints holds null where a string is wanted"},
		{"pairs in a flat record", endpointsKey, `{"endpoints":[{"ip":"10.0.0.1","port":80}]}`, "endpoints holds an object where a string is wanted"},
		{"port of a pair", endpointsKey, `{"apiVersion":"v1beta3","endpoints":[{"ip":"10.0.0.1","port":"80"}]}`, "endpoints.port holds a string where a whole number is wanted"},
		{"affinity timeout", specKey, `{"apiVersion":"v1","spec":{"port":1,"sessionAffinity":"ClientIP","sessionAffinityConfig":{"clientIP":{"timeoutSeconds":"60"}}}}`,
			"spec.sessionAffinityConfig.clientIP.timeoutSeconds holds a string where a whole number is wanted"},
		{"source ranges", specKey, `{"apiVersion":"v1","spec":{"port":1,"loadBalancerSourceRanges":"10.0.0.0/8"}}`,
			"spec.loadBalancerSourceRanges holds a string where an array is wanted"},
		{"one bad source range of two", specKey, `{"apiVersion":"v1","spec":{"port":1,"loadBalancerSourceRanges":["10.0.0.0/8","10.0.0.0/33"]}}`,
			`spec.loadBalancerSourceRanges holds "10.0.0.0/33": not a range of addresses such as 10.0.0.0/8`},
		{"a hole in the source ranges", specKey, `{"apiVersion":"v1","spec":{"port":1,"loadBalancerSourceRanges":["10.0.0.0/8",null]}}`,
			`spec.loadBalancerSourceRanges holds "": not a range of addresses such as 10.0.0.0/8`},
		{"one bad range in the annotation", specKey, `{"port":1,"annotations":{"` + rangesAnnotation + `":"10.0.0.0/8,"}}`,
			`annotation ` + rangesAnnotation + ` holds "": not a range of addresses such as 10.0.0.0/8`},
		{"annotation of the wrong type", specKey, `{"apiVersion":"v1","metadata":{"annotations":{"` + rangesAnnotation + `":["10.0.0.0/8"]}},"spec":{"port":1}}`,
			`annotations.` + rangesAnnotation + ` holds an array where a string is wanted`},
		{"too long", specKey, strings.Repeat(" ", registry.MaxRecordBytes) + `{`, "value of 1572865 bytes is longer than the limit of 1572864"},
		{"slice of another group", sliceKey, `{"apiVersion":"v1"}`, `unknown apiVersion "v1"`},
		{"kind of a slice", sliceKey, `{"kind":"Endpoints"}`, `kind is "Endpoints" where EndpointSlice is wanted`},
		{"slice without labels", sliceKey, `{"addressType":"IPv4"}`, "no label kubernetes.io/service-name, so the slice belongs to no service"},
		{"labels of a slice", sliceKey, `{"metadata":{"labels":["x"]},"addressType":"IPv4"}`, "no label kubernetes.io/service-name, so the slice belongs to no service"},
		{"flat labels of a slice", sliceKey, `{"labels":{"kubernetes.io/service-name":"x"},"addressType":"IPv4"}`, "no label kubernetes.io/service-name, so the slice belongs to no service"},
		{"label that is no name", sliceKey, slice(`x/y`, `"addressType":"IPv4"`), `label kubernetes.io/service-name holds "x/y", which is no name of a service`},
		{"empty label", sliceKey, slice(``, `"addressType":"IPv4"`), "label kubernetes.io/service-name is empty"},
		{"long label", sliceKey, slice(strings.Repeat("x", 254), `"addressType":"IPv4"`), "label kubernetes.io/service-name of 254 bytes is longer than 253"},
		{"label of the wrong type", sliceKey, `{"metadata":{"labels":{"kubernetes.io/service-name":5}},"addressType":"IPv4"}`,
			"label kubernetes.io/service-name holds a number where a string is wanted"},
		{"no address type", sliceKey, slice("x", `"endpoints":[]`), "no addressType"},
		{"address type", sliceKey, slice("x", `"addressType":"ipv4"`), `unknown addressType "ipv4"`},
		{"address type of the wrong type", sliceKey, slice("x", `"addressType":4`), "addressType holds a number where a string is wanted"},
		{"endpoints of a slice", sliceKey, slice("x", `"addressType":"IPv4","endpoints":{}`), "endpoints holds an object where an array is wanted"},
		{"endpoints of a slice as strings", sliceKey, slice("x", `"addressType":"IPv4","endpoints":["10.0.0.1:80"]`), "endpoints holds a string where an object is wanted"},
		{"addresses of a slice", sliceKey, slice("x", `"addressType":"IPv4","endpoints":[{"addresses":"10.0.0.1"}]`), "endpoints.addresses holds a string where an array is wanted"},
		{"conditions", sliceKey, slice("x", `"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":"true"}}]`),
			"endpoints.conditions.ready holds a string where a boolean is wanted"},
		{"ports of a slice", sliceKey, slice("x", `"addressType":"IPv4","ports":[{"port":"80"}]`), "ports.port holds a string where a whole number is wanted"},
		{"port name of a slice", sliceKey, slice("x", `"addressType":"IPv4","ports":[{"name":"`+strings.Repeat("w", 64)+`","port":80}]`),
			`port name "` + strings.Repeat("w", 40) + `"… (64 bytes) is longer than 63 bytes`},
		{"subsets", endpointsKey, `{"subsets":{}}`, "subsets holds an object where an array is wanted"},
		{"addresses", endpointsKey, `{"subsets":[{"addresses":["10.0.0.1"]}]}`, "subsets.addresses holds a string where an object is wanted"},
		{"ip", endpointsKey, `{"subsets":[{"addresses":[{"ip":1}]}]}`, "subsets.addresses.ip holds a number where a string is wanted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := Decode(c.key, []byte(c.value))
			checkAnswer(t, r, warnings, err)
			if err == nil {
				t.Fatalf("accepted: %s", summary(r))
			}
			if err.Error() != c.want {
				t.Errorf("error  %s\n  want %s", err, c.want)
			}
		})
	}
}

func TestForeignKeysAreToldApart(t *testing.T) {
	if _, _, err := Decode(registry.Prefix+"other/x", nil); !errors.Is(err, registry.ErrForeign) {
		t.Errorf("foreign key: %v", err)
	}
	if _, _, err := Decode(registry.SpecsPrefix+"a/b/c", nil); err == nil || errors.Is(err, registry.ErrForeign) {
		t.Errorf("key of the wrong depth: %v", err)
	}
}

// D21: identity comes from the key.
func TestTheKeyCountsWhenTheBodyDisagrees(t *testing.T) {
	const nothing = ""
	for _, c := range []struct{ name, key, value, want string }{
		{"agrees", "prod/x", `{"id":"x","namespace":"prod","port":1}`, nothing},
		{"says nothing", "prod/x", `{"port":1}`, nothing},
		{"says null", "prod/x", `{"id":null,"namespace":null,"port":1}`, nothing},
		{"id", "prod/x", `{"id":"y","port":1}`, `the body says that it is "prod/y"; the key counts`},
		{"namespace", "x", `{"id":"x","namespace":"prod","port":1}`, `the body says that it is "prod/x"; the key counts`},
		{"both", "prod/x", `{"id":"y","namespace":"q","port":1}`, `the body says that it is "q/y"; the key counts`},
		{"nested", "prod/x", `{"apiVersion":"v1","metadata":{"name":"y"},"spec":{"port":1}}`, `the body says that it is "prod/y"; the key counts`},
		{"the other version's fields mean nothing", "x", `{"metadata":{"name":"y"},"port":1}`, nothing},
		{"nor there", "x", `{"apiVersion":"v1","id":5,"namespace":[],"spec":{"port":1}}`, nothing},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := Decode(registry.SpecsPrefix+c.key, []byte(c.value))
			checkAnswer(t, r, warnings, err)
			if err != nil {
				t.Fatal(err)
			}
			if r.Service.Name.Name != "x" {
				t.Errorf("named %v", r.Service.Name)
			}
			var got string
			switch len(warnings) {
			case 0:
			case 1:
				got = string(warnings[0])
			default:
				t.Errorf("%d warnings: %q", len(warnings), warnings)
			}
			if got != c.want {
				t.Errorf("warning %s\n   want %s", got, c.want)
			}
		})
	}
}

func TestANameThatEndsAsThatOfAFileIsWarnedOf(t *testing.T) {
	for key, want := range map[string]string{
		registry.SpecsPrefix + "web":            "",
		registry.SpecsPrefix + "web.v2":         "",
		registry.SpecsPrefix + "web.json":       `the service is called "web.json", with the ending: write the record to a key without it if "web" is meant`,
		registry.EndpointsPrefix + "prod/a.yml": `the service is called "a.yml", with the ending: write the record to a key without it if "a" is meant`,
		registry.SpecsPrefix + "web.yaml":       `the service is called "web.yaml", with the ending: write the record to a key without it if "web" is meant`,
	} {
		_, warnings, err := Decode(key, []byte(`{"port":80,"endpoints":["10.0.0.1:80"]}`))
		if got := fmt.Sprint(warnings); err != nil || got != "["+want+"]" {
			t.Errorf("%s: %s, %v; want %s", key, got, err, want)
		}
	}
}

// Package json would fill in the first list's names where the second has none.
func TestOfRepeatedKeysTheLastCountsWhole(t *testing.T) {
	for _, c := range []struct{ name, key, value, plain string }{
		{"ports", specKey,
			`{"ports":[{"name":"a","port":1,"protocol":"UDP"},{"port":2}],"ports":[{"port":3}]}`,
			`{"ports":[{"port":3}]}`},
		{"port taken back", specKey, `{"ports":[{"port":4}],"port":1,"port":null}`, `{"ports":[{"port":4}]}`},
		{"ports in spec", specKey,
			`{"apiVersion":"v1","spec":{"ports":[{"name":"a","port":1}],"ports":[{"port":2}]}}`,
			`{"apiVersion":"v1","spec":{"ports":[{"port":2}]}}`},
		{"spec", specKey,
			`{"apiVersion":"v1","spec":{"clusterIP":"None","port":1},"spec":{"port":2}}`,
			`{"apiVersion":"v1","spec":{"port":2}}`},
		{"metadata", specKey,
			`{"apiVersion":"v1","metadata":{"name":"wrong"},"metadata":{},"spec":{"port":2}}`,
			`{"apiVersion":"v1","spec":{"port":2}}`},
		{"endpoints", endpointsKey, `{"endpoints":["a:1","b:2"],"endpoints":["c:3"]}`, `{"endpoints":["c:3"]}`},
		{"subsets", endpointsKey,
			`{"subsets":[{"addresses":[{"ip":"a"}],"ports":[{"name":"n","port":1}]}],"subsets":[{"addresses":[{"ip":"b"}],"ports":[{"port":1}]}]}`,
			`{"subsets":[{"addresses":[{"ip":"b"}],"ports":[{"port":1}]}]}`},
		{"ports of a subset", endpointsKey,
			`{"subsets":[{"addresses":[{"ip":"a"}],"addresses":[{"ip":"b"}],"ports":[{"name":"n","port":1}],"ports":[{"port":2}]}]}`,
			`{"subsets":[{"addresses":[{"ip":"b"}],"ports":[{"port":2}]}]}`},
		{"in another case", specKey, `{"Port":1,"port":2}`, `{"port":2}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, warnings, err := Decode(c.key, []byte(c.value))
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %q", err, warnings)
			}
			want, _, err := Decode(c.key, []byte(c.plain))
			if err != nil {
				t.Fatal(err)
			}
			if !got.Service.Equal(want.Service) || !got.Endpoints.Equal(want.Endpoints) {
				t.Errorf("%s\n got %s\nwant %s", c.value, summary(got), summary(want))
			}
		})
	}
}

func TestFieldsOfNoUseMayHoldAnything(t *testing.T) {
	for _, c := range []struct{ name, key, value string }{
		{"flat service", specKey, `{"port":1,"metadata":5,"spec":[],"endpoints":{},"subsets":true,"containerPort":[],"labels":"x",
			"annotations":"x","loadBalancerSourceRanges":null,"sessionAffinityConfig":7}`},
		{"annotations of other people", specKey, `{"apiVersion":"v1","metadata":{"annotations":{"a":5,"b":{}}},"spec":{"port":1,"sessionAffinityConfig":7}}`},
		{"ranges of a service with nothing to serve", specKey, `{"apiVersion":"v1","spec":{"clusterIP":"None","loadBalancerSourceRanges":5}}`},
		{"nested service", specKey, `{"apiVersion":"v1","spec":{"ports":[{"port":1,"targetPort":{},"nodePort":"x"}],"selector":[]},"port":"x","status":1}`},
		{"flat endpoints", endpointsKey, `{"endpoints":["10.0.0.1:80"],"targetRefs":1,"protocol":[],"port":"x","spec":1}`},
		{"nested endpoints", endpointsKey, `{"apiVersion":"v1","id":{},"subsets":[{"addresses":[{"ip":"10.0.0.1","targetRef":7}],"notReadyAddresses":"x","ports":[{"port":80,"protocol":6}]}]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := Decode(c.key, []byte(c.value))
			checkAnswer(t, r, warnings, err)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("error %v, warnings %q", err, warnings)
			}
			if r.Service != nil && len(r.Service.Ports) != 1 && !strings.Contains(c.value, "None") || r.Endpoints != nil && len(r.Endpoints.ByPort) != 1 {
				t.Errorf("decoded as %s", summary(r))
			}
		})
	}
}
