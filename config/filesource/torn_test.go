package filesource

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// Kubelet swaps ..data, and removes the version before while it is being read. That removes no service, and puts off no full scan.
func TestAVersionThatIsRemovedWhileItIsReadRemovesNoService(t *testing.T) {
	dir := t.TempDir()
	specs := filepath.Join(dir, "registry/services/specs")
	names := []string{"a", "b", "c"}
	swap := func(n int) {
		at := filepath.Join(specs, fmt.Sprintf("..v%d", n))
		must(t, os.MkdirAll(at, 0o755))
		for _, name := range names {
			must(t, os.WriteFile(filepath.Join(at, name), []byte(recordstest.Port(n)), 0o644))
		}
		must(t, os.Symlink(filepath.Base(at), filepath.Join(specs, "..data_tmp")))
		must(t, os.Rename(filepath.Join(specs, "..data_tmp"), filepath.Join(specs, "..data")))
		must(t, os.RemoveAll(filepath.Join(specs, fmt.Sprintf("..v%d", n-1))))
	}
	swap(1)
	for _, name := range names {
		must(t, os.Symlink("..data/"+name, filepath.Join(specs, name)))
	}
	s, out := newSource(t, Config{Dir: dir}), make(chan registry.Update, 1)
	f := recordstest.NewFollower(s)
	f.Lives = true
	during := func(n int) {
		s.tree.Reading = func() { s.tree.Reading = nil; swap(n) }
	}
	scan := func(when, want string) time.Duration {
		t.Helper()
		wait := s.scan(t.Context(), out, newNotices(dir, true))
		select {
		case u := <-out:
			for _, c := range u.Services {
				if c.Value == nil {
					t.Errorf("%s: an Update removes service %v", when, c.Name)
				}
			}
			f.Add(u)
		default:
		}
		if got := f.Show(); got != want {
			t.Errorf("%s: there is %q; want %q", when, got, want)
		}
		return wait
	}
	during(2)
	if wait := scan("the first scan", ""); wait != soon || s.Status().Ready {
		t.Errorf("the next scan comes after %v, ready: %v; want %v, and nothing read yet", wait, s.Status().Ready, soon)
	}
	scan("the second scan", "a:2@1 b:2@1 c:2@1")
	during(3)
	if wait := scan("a scan of what has changed", "a:2@1 b:2@1 c:2@1"); wait != soon {
		t.Errorf("the next scan comes after %v; want %v", wait, soon)
	}
	scan("the scan after it", "a:3@1 b:3@1 c:3@1")
	s.full = time.Time{}
	during(4)
	scan("a full scan", "a:3@1 b:3@1 c:3@1")
	if !s.full.IsZero() {
		t.Error("a scan that read nothing has put off the full scan")
	}
	before := f.Sets()
	scan("the full scan that is still due", "a:4@1 b:4@1 c:4@1")
	if f.Sets() != before+1 {
		t.Errorf("%d SETs; want one more than %d", f.Sets(), before)
	}
}
