package filesource

import (
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// BenchmarkChangeToUpdate replaces one of 1,000 files, and waits for the Update that tells of it: by a notice of the system, where it has
// them.
func BenchmarkChangeToUpdate(b *testing.B) { benchmarkChange(b, false) }

// BenchmarkChangeFoundByScan is without notices, as on network file systems: the next scan finds the change.
func BenchmarkChangeFoundByScan(b *testing.B) { benchmarkChange(b, true) }

func benchmarkChange(b *testing.B, polls bool) {
	dir := b.TempDir()
	for _, r := range recordstest.Registry(500) {
		replace(b, dir, r.Key, r.Value)
	}
	s := newSource(b, Config{Dir: dir})
	s.polls = polls
	f := follow(b, s)
	f.Add(<-f.Updates)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		replace(b, dir, registry.SpecsPrefix+"service-00000", recordstest.Port(1+len(took)%60000))
		for u := range f.Updates {
			if len(u.Services) == 1 {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	recordstest.ReportLatencies(b, took)
}
