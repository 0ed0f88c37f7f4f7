package etcdv2source

import (
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
)

// BenchmarkChangeToUpdate writes a service, and waits for the Update that tells of it. The etcd, which is one in memory, and the network
// of this machine are in it.
func BenchmarkChangeToUpdate(b *testing.B) {
	etcd, f := started(b)
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		etcd.Put(recordstest.Spec("a"), recordstest.Port(2+len(took)%60000))
		for u := range f.Updates {
			if len(u.Services) > 0 && !u.Set {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	recordstest.ReportLatencies(b, took)
}
