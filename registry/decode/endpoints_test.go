package decode

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/registry"
)

// byPort gives endpoints as text, to compare with.
func byPort(e *registry.Endpoints) map[string]string {
	m := make(map[string]string)
	for _, p := range e.ByPort {
		m[p.Port] = strings.Trim(p.Addrs.String(), "[]")
	}
	return m
}

func TestEndpointsOfARecord(t *testing.T) {
	for _, c := range []struct {
		name, value string
		want        map[string]string
	}{
		{"strings, flat", `{"endpoints":["10.0.0.2:80","10.0.0.1:80","10.0.0.2:80"]}`, map[string]string{"": "10.0.0.2:80 10.0.0.1:80"}},
		{"strings, nested", `{"apiVersion":"v1beta3","endpoints":["10.0.0.2:80"]}`, map[string]string{"": "10.0.0.2:80"}},
		{"pairs", `{"apiVersion":"v1beta3","endpoints":[ {"ip":"10.0.0.2","port":80},{"ip":"db.local","port":81}]}`, map[string]string{"": "10.0.0.2:80 db.local:81"}},
		{"subsets win", `{"endpoints":["10.0.0.1:1"],"subsets":[{"addresses":[{"IP":"10.0.0.2"}],"ports":[{"port":2}]}]}`, map[string]string{"": "10.0.0.2:2"}},
		{"empty subsets do not", `{"endpoints":["10.0.0.1:1"],"subsets":[]}`, map[string]string{"": "10.0.0.1:1"}},
		{"each with each",
			`{"apiVersion":"v1","subsets":[{"addresses":[{"ip":"10.0.0.1"},{"ip":"::1"}],"ports":[{"name":"a","port":1},{"name":"b","port":2}]}]}`,
			map[string]string{"a": "10.0.0.1:1 [::1]:1", "b": "10.0.0.1:2 [::1]:2"}},
		{"subsets add up, each address once",
			`{"subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[{"port":1}]},
			             {"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":1},{"port":2}]}]}`,
			map[string]string{"": "10.0.0.1:1 10.0.0.2:1 10.0.0.1:2 10.0.0.2:2"}},
		{"addresses without ports, ports without addresses",
			`{"subsets":[{"addresses":[{"ip":"10.0.0.1"}]},{"ports":[{"name":"p","port":1}]},{},null]}`, map[string]string{}},
		{"one address spelled twice", `{"endpoints":["[::ffff:10.0.0.1]:80","10.0.0.1:80"]}`, map[string]string{"": "10.0.0.1:80"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, endpointsKey, c.value)
			if warnings != "" || r.Dropped != 0 {
				t.Errorf("%d dropped, warnings %q", r.Dropped, warnings)
			}
			if diff := cmp.Diff(c.want, byPort(r.Endpoints)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", c.value, diff)
			}
		})
	}
}

func TestUnusableEntriesAreCountedAndSomeNamed(t *testing.T) {
	for _, c := range []struct {
		name, value string
		dropped     int
		kept        map[string]string
		warning     string
	}{
		{"one", `{"endpoints":["web"]}`, 1, map[string]string{},
			`unusable endpoint left out: "web" (missing port in address)`},
		{"many", `{"endpoints":["a:0","b:0","c:80","d:0","e:0"]}`, 4, map[string]string{"": "c:80"},
			`4 unusable endpoints left out, among them "a:0" (port is not between 1 and 65535),` +
				` "b:0" (port is not between 1 and 65535), "d:0" (port is not between 1 and 65535)`},
		{"pairs", `{"apiVersion":"v1beta3","endpoints":[{"ip":"10.0.0.1"},{"port":1},{"ip":"10.0.0.2","port":2}]}`, 2, map[string]string{"": "10.0.0.2:2"},
			`2 unusable endpoints left out: "10.0.0.1" (no port number), "" (no host)`},
		{"in a subset, for all that they stand for",
			`{"subsets":[{"addresses":[{"ip":"-"},{"ip":"10.0.0.1"},{"ip":"10.0.0.2"}],"ports":[{"port":1},{"name":"p","port":-1}]}]}`,
			4, map[string]string{"": "10.0.0.1:1 10.0.0.2:1"},
			`4 unusable endpoints left out, among them "-" (neither an address nor a host name), "p" (port -1 is not between 1 and 65535)`},
		{"in a subset, standing for nothing", `{"subsets":[{"addresses":[{"ip":"-"}]},{"ports":[{"port":0}]}]}`, 0, map[string]string{}, ""},
		{"standing for nothing beside another", `{"subsets":[{"addresses":[{"ip":"-"}]},{"addresses":[{"ip":"/"}],"ports":[{"port":1}]}]}`, 1, map[string]string{},
			`unusable endpoint left out: "/" (neither an address nor a host name)`},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings := decodeTo(t, endpointsKey, c.value)
			if r.Dropped != c.dropped || warnings != c.warning {
				t.Errorf("%d dropped: %s\nwant %d: %s", r.Dropped, warnings, c.dropped, c.warning)
			}
			if diff := cmp.Diff(c.kept, byPort(r.Endpoints)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}

// fill repeats an element, %d standing for its number, until the array in the record has reached a
// size. What comes after the array is part of it.
func fill(size int, before, element, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len() < size-len(after)-len(element)-10; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(element, "%d", fmt.Sprint(i)))
	}
	b.WriteString(after)
	return b.String()
}

// Each of these would take minutes or the whole memory if any of the work grew with the square of
// the length.
func TestLargestRecordsAreDecodedInProportion(t *testing.T) {
	long := strings.Repeat("n", registry.MaxRecordBytes/2)
	for _, c := range []struct{ name, key, value, err string }{
		{"strings", endpointsKey, fill(registry.MaxRecordBytes, `{"endpoints":[`, `"h%d:80"`, `]}`), ""},
		{"the same string", endpointsKey, fill(registry.MaxRecordBytes, `{"endpoints":[`, `"h:80"`, `]}`), ""},
		{"unusable strings", endpointsKey, fill(registry.MaxRecordBytes, `{"endpoints":[`, `""`, `]}`), ""},
		{"addresses of one subset", endpointsKey, fill(registry.MaxRecordBytes, `{"subsets":[{"ports":[{"port":1}],"addresses":[`, `{"ip":"h%d"}`, `]}]}`), ""},
		{"subsets", endpointsKey, fill(registry.MaxRecordBytes, `{"subsets":[`, `{"addresses":[{"ip":"h%d"}],"ports":[{"name":"p%d","port":1}]}`, `]}`), ""},
		{"subsets of one port", endpointsKey, fill(registry.MaxRecordBytes, `{"subsets":[`, `{"addresses":[{"ip":"h%d"}],"ports":[{"port":1}]}`, `]}`), ""},
		{"addresses on a port with a long name", endpointsKey,
			fill(registry.MaxRecordBytes, `{"subsets":[{"ports":[{"name":"`+long+`","port":1}],"addresses":[`, `{"ip":"h%d"}`, `]}]}`), "port name"},
		{"all with all", endpointsKey, fill(registry.MaxRecordBytes,
			fill(registry.MaxRecordBytes/2, `{"subsets":[{"ports":[`, `{"port":1}`, `],"addresses":[`), `{"ip":"h%d"}`, `]}]}`),
			"subsets combine to more than 65536 endpoints"},
		{"unusable with unusable", endpointsKey, fill(registry.MaxRecordBytes,
			fill(registry.MaxRecordBytes/2, `{"subsets":[{"ports":[`, `{"port":0}`, `],"addresses":[`), `{"ip":"/%d"}`, `]}]}`), ""},
		{"ports", specKey, fill(registry.MaxRecordBytes, `{"ports":[`, `{"port":1%d}`, `]}`), "98997 ports are listed"},
		{"repeated keys", specKey, fill(registry.MaxRecordBytes, `{`, `"ports":[{"port":%d}]`, `,"port":1,"ports":[]}`), ""},
		{"long id", specKey, `{"id":"` + long + `","port":1}`, ""},
		{"long protocol", specKey, `{"protocol":"` + long + `","port":1}`, "unsupported protocol"},
		{"long kind", specKey, `{"kind":"` + long + `","port":1}`, "kind is"},
		{"long number", specKey, `{"port":` + strings.Repeat("9", registry.MaxRecordBytes-20) + `}`, "port holds the number"},
		{"long host", endpointsKey, `{"endpoints":["` + long + `:80","10.0.0.1:80"]}`, ""},
		{"source ranges", specKey, fill(registry.MaxRecordBytes, `{"apiVersion":"v1","spec":{"port":1,"loadBalancerSourceRanges":[`, `"10.0.0.0/8"`, `]}}`),
			"spec.loadBalancerSourceRanges lists"},
		{"source ranges in the annotation", specKey,
			`{"port":1,"annotations":{"` + rangesAnnotation + `":"` + strings.Repeat("::/0,", registry.MaxRecordBytes/6) + `"}}`,
			"annotation " + rangesAnnotation + " lists"},
		{"long field name", specKey, `{"` + long + `":1,"port":1}`, ""},
		{"long text", specKey, long, "not JSON"},
		{"deep", specKey, strings.Repeat(`{"spec":`, registry.MaxRecordBytes/8), "not valid JSON: "},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r, warnings, err := Decode(c.key, []byte(c.value))
			checkAnswer(t, r, warnings, err)
			if (c.err == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), c.err) {
				t.Errorf("%.60s…: error %v, want %q", c.value, err, c.err)
			}
		})
	}
}

// The numbers of a subset's combinations are bounded, not those of a list that has them spelled out.
func TestNoListOfTheLargestSizeIsTooLong(t *testing.T) {
	r, warnings := decodeTo(t, endpointsKey, fill(registry.MaxRecordBytes, `{"endpoints":[`, `"h:1"`, `,"last:1"]}`))
	if warnings != "" || byPort(r.Endpoints)[""] != "h:1 last:1" {
		t.Errorf("warnings %q, endpoints %v", warnings, byPort(r.Endpoints))
	}
	var subsets struct {
		Subsets [1]struct {
			Addresses [512]struct{ IP string }
			Ports     [1 + maxCombined/512]struct{ Port int }
		}
	}
	s := &subsets.Subsets[0]
	for i := range s.Addresses {
		s.Addresses[i].IP = fmt.Sprintf("10.0.%d.%d", i/256, i%256)
	}
	for i := range s.Ports {
		s.Ports[i].Port = 1 + i
	}
	value, err := json.Marshal(subsets)
	if err != nil {
		t.Fatal(err)
	}
	if r, _ := decodeTo(t, endpointsKey, string(value)); r.Endpoints.Of("").Len() != 512+maxCombined {
		t.Errorf("%d endpoints, want %d", r.Endpoints.Of("").Len(), 512+maxCombined)
	}
}

func TestPortsOfEndpointsAreSortedAndFound(t *testing.T) {
	r, _ := decodeTo(t, endpointsKey, `{"apiVersion":"v1","subsets":[{"addresses":[{"ip":"10.0.0.1"}],"ports":[
		{"name":"q","port":2},{"name":"p","port":1},{"name":"","port":3}]}]}`)
	var names []string
	for _, p := range r.Endpoints.ByPort {
		names = append(names, p.Port)
		if got := r.Endpoints.Of(p.Port); got.Len() != 1 || got != p.Addrs {
			t.Errorf("of port %q: %v; want %v", p.Port, got, p.Addrs)
		}
	}
	if diff := cmp.Diff([]string{"", "p", "q"}, names); diff != "" {
		t.Errorf("ports (-want +got):\n%s", diff)
	}
	if got := r.Endpoints.Of("z"); got != (registry.Addrs{}) {
		t.Errorf("of a port that is not named: %v", got)
	}
}
