//go:build linux

package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/registry"
)

// What the process promises while four writers write as fast as etcd lets them.
const (
	writersMemory = 256 << 20        // resident, with what is mapped of files
	changeBound   = 2 * time.Second  // until a change of another service is in force
	ageSlack      = time.Second      // by which config_age may be less than the age of a change not in force
	largeValue    = 1_400_000        // bytes
	writersTime   = 30 * time.Second // of each round, in full
)

// TestFourWritersOfLargeValues rewrite four records of 1.4 MB. Another service changes all the while.
func TestFourWritersOfLargeValues(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := attacked(t)
	s.forgetsHistory(t)
	var files []string
	for seed := range 2 {
		file := filepath.Join(s.dir, fmt.Sprint("value-", seed))
		if err := os.WriteFile(file, []byte(largeEndpoints(seed, largeValue)), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	var slowest, understated time.Duration
	r := s.withstands(t, fmt.Sprintf("4 writers of %d bytes for %v", largeValue, writersTime), writersMemory, func(t *testing.T, atProxy bool) func() {
		prefix := "/elsewhere/"
		if atProxy {
			prefix = registry.EndpointsPrefix
		}
		var writers []*programtest.Program
		for i := range 4 {
			writers = append(writers, cast(t, "writer", s.etcd.URL(), prefix+strconv.Itoa(i), strings.Join(files, ","), 1_000_000, 1000, 1))
		}
		lasting := time.Duration(number(15, 5)) * time.Second
		if atProxy && *full {
			lasting = writersTime
		}
		for began := time.Now(); time.Since(began) < lasting; {
			took, less := s.changeAndAge(t)
			if atProxy {
				slowest, understated = max(slowest, took), max(understated, less)
			}
			time.Sleep(200 * time.Millisecond)
		}
		for _, w := range writers {
			dismiss(t, w)
		}
		return func() {}
	})
	r.Felt.Proxy.Took, r.Felt.Sink.Took = 0, 0 // the test decides how long the load lasts
	if *full && slowest > changeBound {
		t.Errorf("a change of another service was in force after %v; want %v at most", slowest, changeBound)
	}
	if *full && understated > ageSlack {
		t.Errorf("config_age was %v less than the age of a change not in force; want %v at most", understated, ageSlack)
	}
	r.Highest = max(r.Highest, s.resident(t))
	r.Refused = fmt.Sprintf("nothing; other changes in force within %v; config_age %v too small at most", slowest.Round(time.Millisecond), understated.Round(time.Millisecond))
	r.judge(t)
}

// history is how much of its history etcd keeps while four writers write. That is a few hundred megabytes, and enough that no
// watch loses what it has not been sent yet.
const history = 5 * time.Second

// forgetsHistory has etcd compact what is older than that, every second until the test ends. The space is used again for what is written
// next, so that etcd's database stays below its quota however long the writers write.
func (s *site) forgetsHistory(t *testing.T) {
	stopped, over := t.Context().Done(), make(chan struct{})
	go func() {
		defer close(over)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for revisions := []int64{}; ; { // one a second, the oldest first
			select {
			case <-stopped:
				return
			case <-tick.C:
			}
			now, err := s.kv.Get(t.Context(), "/")
			if err != nil {
				continue // at the end of the test
			}
			if revisions = append(revisions, now.Header.Revision); len(revisions) > int(history/time.Second) {
				_, _ = s.kv.Compact(t.Context(), revisions[0]) // without a change there is nothing to compact
				revisions = revisions[1:]
			}
		}
	}()
	t.Cleanup(func() { <-over })
}

// changeAndAge writes a change and returns how long it took to be in force, counted from when etcd had it, and by how
// much config_age was less than that while it was not.
func (s *site) changeAndAge(t *testing.T) (took, less time.Duration) {
	t.Helper()
	s.service(t, "canary", canaryPort, "TCP", echoes)
	written := time.Now()
	eventually(t, func() bool {
		page := s.metrics(t)
		if page.Sum("kubeproxy_listeners") == 5 {
			return true
		}
		asked := time.Since(written)
		less = max(less, asked-time.Duration(page.Sum("kubeproxy_config_age_seconds")*float64(time.Second)))
		return false
	}, "a new service is open")
	took = time.Since(written)
	s.remove(t, "canary")
	eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == 4 }, "a removed service is closed")
	return took, less
}

// resident is the most memory that the process has had, with what it maps of files.
func (s *site) resident(t *testing.T) uint64 {
	t.Helper()
	n, err := statusBytes(s.proxy.Pid(), "VmHWM:")
	if err != nil {
		t.Fatal(err)
	}
	return n
}
