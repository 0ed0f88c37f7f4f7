package filesource

import (
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// BenchmarkChangeToUpdate replaces one of 100 files, and waits for the Update that tells of it: by a notice of the system, where it has
// them.
func BenchmarkChangeToUpdate(b *testing.B) {
	dir := b.TempDir()
	for _, r := range recordstest.Registry(50) {
		replace(b, dir, r.Key, r.Value)
	}
	f := follow(b, newSource(b, Config{Dir: dir}))
	f.add(<-f.updates)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		replace(b, dir, registry.SpecsPrefix+"service-00000", recordstest.Port(1+len(took)%60000))
		for u := range f.updates {
			if len(u.Services) == 1 {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	recordstest.ReportLatencies(b, took)
}
