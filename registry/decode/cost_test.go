package decode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// TestWhatARecordCostsIsBounded holds the worst records found to a bound on memory: on what is
// allocated while they are read, and on what is left of it.
func TestWhatARecordCostsIsBounded(t *testing.T) {
	const (
		maxAllocated = 90 * registry.MaxRecordBytes // an array of what is not wanted: each element grows to a struct
		maxKept      = 10 * registry.MaxRecordBytes // a port of one address is kept with its name
	)
	combined := func(addresses, ports int) string {
		a := make([]string, addresses)
		for i := range a {
			a[i] = fmt.Sprintf(`{"ip":"10.0.%d.%d"}`, i/256, i%256)
		}
		p := make([]string, ports)
		for i := range p {
			p[i] = fmt.Sprintf(`{"name":"%d","port":%d}`, i, 1+i)
		}
		return `{"subsets":[{"addresses":[` + strings.Join(a, ",") + `],"ports":[` + strings.Join(p, ",") + `]}]}`
	}
	for _, c := range []struct{ name, key, value string }{
		{"empty pairs", endpointsKey, fill(registry.MaxRecordBytes, `{"apiVersion":"v1beta3","endpoints":[`, `{}`, `]}`)},
		{"numbers for subsets", endpointsKey, fill(registry.MaxRecordBytes, `{"subsets":[`, `0`, `]}`)},
		{"one endpoint for each port name", endpointsKey,
			fill(registry.MaxRecordBytes, `{"subsets":[{"addresses":[{"ip":"h"}],"ports":[`, `{"name":"%d","port":1}`, `]}]}`)},
		{"all with all", endpointsKey, combined(256, maxCombined/256)},
		{"few with many", endpointsKey, combined(4, maxCombined/4)},
		{"keys with escapes", endpointsKey, fill(registry.MaxRecordBytes, `{"id":"a",`, `"\n":0`, `}`)},
		{"empty ports", specKey, fill(registry.MaxRecordBytes, `{"ports":[`, `{}`, `]}`)},
		{"unknown names of ours", specKey, fill(registry.MaxRecordBytes, `{"port":80,"annotations":{`, `"kube-proxy/abcdef%d":""`, `}}`)},
	} {
		t.Run(c.name, func(t *testing.T) {
			value := []byte(c.value)
			var before, after, kept runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			r, _, _ := Decode(c.key, value) // good or not
			runtime.ReadMemStats(&after)
			runtime.GC()
			runtime.ReadMemStats(&kept)
			allocated, left := after.TotalAlloc-before.TotalAlloc, int64(kept.HeapAlloc)-int64(before.HeapAlloc)
			t.Logf("%d bytes: %.1f MB allocated, %.1f MB kept", len(value), float64(allocated)/1e6, float64(left)/1e6)
			if allocated > maxAllocated || left > maxKept {
				t.Errorf("%d bytes took %d bytes of memory and kept %d; want at most %d and %d", len(value), allocated, left, maxAllocated, maxKept)
			}
			runtime.KeepAlive(value)
			runtime.KeepAlive(r)
		})
	}
}
