package filesource

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// longEnough is how long a test waits for what has to come.
const longEnough = 30 * time.Second

var _ config.Source = (*Source)(nil)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// replace writes a file as programs should: under another name first.
func replace(t testing.TB, dir, key, value string) {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(key))
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path+".tmp", []byte(value), 0o644))
	must(t, os.Rename(path+".tmp", path))
}

func remove(t testing.TB, dir, key string) {
	t.Helper()
	must(t, os.Remove(filepath.Join(dir, filepath.FromSlash(key))))
}

func newSource(t testing.TB, cfg Config) *Source {
	t.Helper()
	s, err := New(cfg)
	must(t, err)
	return s
}

// A follower is a source that runs, and what it has sent.
type follower struct {
	*Source
	*recordstest.Follower
}

func follow(t testing.TB, s *Source) *follower {
	f := &follower{s, recordstest.Follow(t, s)}
	f.Lives = true
	return f
}

// spec writes a service.
func spec(t testing.TB, dir, name string, port int) {
	t.Helper()
	replace(t, dir, recordstest.Spec(name), recordstest.Port(port))
}

// started follows a directory with one service. Nothing but a notice makes it scan.
func started(t *testing.T) (string, *follower) {
	dir := t.TempDir()
	spec(t, dir, "a", 1)
	f := follow(t, newSource(t, Config{Dir: dir, ScanPeriod: time.Hour, SyncPeriod: time.Hour}))
	f.Await(t, "a:1@1")
	return dir, f
}

func TestTheFirstStateIsEverythingInTheDirectory(t *testing.T) {
	dir := t.TempDir()
	spec(t, dir, "a", 1)
	spec(t, dir, "team/b", 2)
	replace(t, dir, recordstest.Ends("a"), recordstest.Addrs("10.0.0.1:80"))
	replace(t, dir, recordstest.Spec("bad"), "{")
	must(t, os.Symlink("a", filepath.Join(dir, recordstest.Spec("link"))))
	f := follow(t, newSource(t, Config{Dir: dir}))
	f.Await(t, "a:1@1 team/b:2@1")
	if len(f.Last().Endpoints) != 1 || f.Sets() != 1 {
		t.Errorf("%d SETs, the last with %d endpoints", f.Sets(), len(f.Last().Endpoints))
	}
	st := awaitStatus(t, f, func(st config.Status) bool { return !st.Current.IsZero() })
	if !st.Ready || !st.Connected || st.Revision != 1 || st.Services != 2 || st.Endpoints != 1 || st.Rejected != 2 || st.Sessions != 1 {
		t.Errorf("%+v", st)
	}
	if len(st.Rejections) != 2 || st.Rejections[1].Reason != "a symbolic link where a file is wanted" || !st.Rejections[1].Unread || st.Rejections[0].Unread {
		t.Errorf("%+v", st.Rejections)
	}
}

// awaitStatus waits until the status is as wanted.
func awaitStatus(t testing.TB, f *follower, ok func(config.Status) bool) config.Status {
	t.Helper()
	for deadline := time.Now().Add(longEnough); ; time.Sleep(time.Millisecond) {
		st := f.Status()
		if ok(st) {
			return st
		}
		if time.Now().After(deadline) {
			t.Fatalf("the status is %+v", st)
		}
	}
}

// Whatever happens in the directory, the system's notices tell of it: the next scan by itself would come after an hour.
func TestAChangeTakesEffectAtOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		do   func(t *testing.T, dir string)
		want string
	}{
		{"a new file", func(t *testing.T, dir string) { spec(t, dir, "b", 2) }, "a:1@1 b:2@2"},
		{"a file that is replaced", func(t *testing.T, dir string) { spec(t, dir, "a", 2) }, "a:2@1"},
		{"a file that is written in place", func(t *testing.T, dir string) {
			must(t, os.WriteFile(filepath.Join(dir, recordstest.Spec("a")), []byte(recordstest.Port(2)), 0o644))
		}, "a:2@1"},
		{"a file that goes", func(t *testing.T, dir string) { remove(t, dir, recordstest.Spec("a")) }, ""},
		{"a new namespace", func(t *testing.T, dir string) { spec(t, dir, "team/b", 2) }, "a:1@1 team/b:2@2"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir, f := started(t)
			test.do(t, dir)
			f.Await(t, test.want)
		})
	}
}

func TestASwappedDirectoryTakesEffectAtOnce(t *testing.T) {
	base := t.TempDir()
	for i, version := range []string{"one", "two"} {
		spec(t, filepath.Join(base, version), "a", i+1)
	}
	link := filepath.Join(base, "current")
	must(t, os.Symlink("one", link))
	f := follow(t, newSource(t, Config{Dir: link, ScanPeriod: time.Hour, SyncPeriod: time.Hour}))
	f.Await(t, "a:1@1")
	for i, version := range []string{"two", "one", "two"} {
		must(t, os.Symlink(version, link+".new"))
		must(t, os.Rename(link+".new", link))
		f.Await(t, fmt.Sprintf("a:%d@1", 2-i%2))
	}
}

// Kubernetes changes all files of a volume by one rename. So they take effect in one step.
func TestASwappedDataLinkTakesEffectInOneStep(t *testing.T) {
	dir := t.TempDir()
	specs := filepath.Join(dir, "registry/services/specs")
	names := []string{"a", "b", "c"}
	version := func(n int) string {
		at := fmt.Sprintf("..v%d", n)
		for _, name := range names {
			path := filepath.Join(specs, at, name)
			must(t, os.MkdirAll(filepath.Dir(path), 0o755))
			must(t, os.WriteFile(path, []byte(recordstest.Port(n)), 0o644))
		}
		must(t, os.Symlink(at, filepath.Join(specs, "..data_tmp")))
		must(t, os.Rename(filepath.Join(specs, "..data_tmp"), filepath.Join(specs, "..data")))
		return at
	}
	old := version(1)
	for _, name := range names {
		must(t, os.Symlink("..data/"+name, filepath.Join(specs, name)))
	}
	f := follow(t, newSource(t, Config{Dir: dir, ScanPeriod: time.Hour, SyncPeriod: time.Hour}))
	f.Await(t, "a:1@1 b:1@1 c:1@1")
	for n := 2; n < 8; n++ {
		next := version(n)
		must(t, os.RemoveAll(filepath.Join(specs, old)))
		old = next
		want := fmt.Sprintf("a:%d@1 b:%d@1 c:%d@1", n, n, n)
		for timer := time.After(longEnough); f.Show() != want; {
			select {
			case u := <-f.Updates:
				if len(u.Services) > 0 && len(u.Services) != len(names) {
					t.Fatalf("a step with %d of the %d services", len(u.Services), len(names))
				}
				f.Add(u)
			case <-timer:
				t.Fatalf("there is %q; want %q", f.Show(), want)
			}
		}
	}
}

// polled follows a directory in a bubble of fake time, without notices.
func polled(t *testing.T, dir string) (*follower, func() string) {
	s := newSource(t, Config{Dir: dir})
	s.polls = true
	log := recordstest.LogSince(t)
	f := follow(t, s)
	go func() { // takes updates until the source ends with the test
		for {
			select {
			case u := <-f.Updates:
				f.Add(u)
			case <-t.Context().Done():
				return
			}
		}
	}()
	synctest.Wait()
	return f, log
}

// after lets fake time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestWithoutNoticesTheNextScanFindsTheChange(t *testing.T) {
	dir := t.TempDir()
	spec(t, dir, "a", 1)
	synctest.Test(t, func(t *testing.T) {
		f, _ := polled(t, dir)
		spec(t, dir, "a", 2)
		after(DefaultScanPeriod - time.Second)
		if got := f.Show(); got != "a:1@1" {
			t.Errorf("before the scan: %s", got)
		}
		after(2 * time.Second)
		if got := f.Show(); got != "a:2@1" {
			t.Errorf("after the scan: %s", got)
		}
		before := f.Sets()
		after(DefaultSyncPeriod * 2)
		if f.Sets() == before {
			t.Error("no SET for two sync periods")
		}
	})
}

func TestADirectoryThatCannotBeReadChangesNothing(t *testing.T) {
	dir := t.TempDir()
	spec(t, dir, "a", 1)
	synctest.Test(t, func(t *testing.T) {
		f, log := polled(t, dir)
		check := func(what, cause, reason string) {
			t.Helper()
			after(2 * DefaultScanPeriod)
			st := f.Status()
			if f.Show() != "a:1@1" || st.Connected || st.Cause != cause || !strings.Contains(st.Reason, reason) || !st.Ready {
				t.Errorf("%s: %s, %+v", what, f.Show(), st)
			}
		}
		services := filepath.Join(dir, "registry/services")
		must(t, os.Rename(dir, dir+".away"))
		check("no directory", "missing", "no such file or directory")
		must(t, os.WriteFile(dir, nil, 0o644))
		check("a file", "unreadable", "not a directory")
		must(t, os.Remove(dir))
		must(t, os.Mkdir(dir, 0o755))
		check("an empty directory", "missing", "has no directory registry/services")
		must(t, os.Remove(dir))
		must(t, os.Rename(dir+".away", dir))
		after(DefaultScanPeriod)
		must(t, os.Rename(services+"/specs", services+"/kept"))
		must(t, os.Symlink("kept", services+"/specs"))
		check("specs is a link", "unreadable", "a symbolic link where a file is wanted")
		must(t, os.Remove(services+"/specs"))
		must(t, os.Mkdir(services+"/specs", 0o755))
		after(2 * DefaultScanPeriod)
		st := f.Status()
		if f.Show() != "" || !st.Connected || st.Sessions != 3 || st.Ends[missing].Count != 1 || st.Ends[unreadable].Count != 1 {
			t.Errorf("an empty registry: %s, %+v", f.Show(), st)
		}
		if text := log(); !strings.Contains(text, "what was known at revision 1 stays in force") || !strings.Contains(text, "can be read again after") {
			t.Errorf("the log has no story:\n%s", text)
		}
	})
}

func TestADirectoryThatIsNotThereIsNamedInOneLineAndWaitedFor(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	synctest.Test(t, func(t *testing.T) {
		f, log := polled(t, dir)
		after(4 * time.Second)
		lines := 0
		for line := range strings.Lines(log()) {
			if strings.HasPrefix(line, "W") {
				lines++
				if want := `services cannot be read: directory "` + dir + `": no such file or directory (create it, or mount the volume that it should be); nothing is known yet, trying again`; !strings.Contains(line, want) {
					t.Errorf("got %s\nwant %s", line, want)
				}
			}
		}
		if lines != 1 || f.Sets() != 0 {
			t.Errorf("%d lines, %d SETs", lines, f.Sets())
		}
		spec(t, dir, "a", 1)
		after(DefaultScanPeriod)
		if got := f.Show(); got != "a:1@1" {
			t.Errorf("got %q", got)
		}
	})
}

func TestADirectoryThatComesLaterIsNoticed(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "later")
	f := follow(t, newSource(t, Config{Dir: dir, ScanPeriod: time.Hour, SyncPeriod: time.Hour}))
	awaitStatus(t, f, func(st config.Status) bool { return st.Attempts > 0 })
	made := filepath.Join(base, "made")
	spec(t, made, "a", 1)
	must(t, os.Rename(made, dir))
	f.Await(t, "a:1@1")
}

func TestAFileInPlaceOfTheDirectoryIsRefusedAtTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o644))
	if _, err := New(Config{Dir: file}); err == nil || err.Error() != fmt.Sprintf("directory %q: not a directory", file) {
		t.Errorf("got %v", err)
	}
}

func TestABadFileKeepsItsLastGoodVersionAndRemovalEndsIt(t *testing.T) {
	dir, f := started(t)
	replace(t, dir, recordstest.Spec("a"), "{")
	spec(t, dir, "b", 2)
	f.Await(t, "a:1@1 b:2@2")
	awaitStatus(t, f, func(st config.Status) bool { return st.Rejected == 1 })
	remove(t, dir, recordstest.Spec("a"))
	f.Await(t, "b:2@2")
	replace(t, dir, recordstest.Spec("a"), "{")
	spec(t, dir, "c", 3)
	f.Await(t, "b:2@2 c:3@4")
	spec(t, dir, "a", 5) // the life began with the file, while it was bad
	f.Await(t, "a:5@4 b:2@2 c:3@4")
}

// The services of a directory that is moved away are gone, and the status says how many there were.
func TestServicesThatAreMovedAwayAreALossUntilTheyAreBack(t *testing.T) {
	dir := t.TempDir()
	spec(t, dir, "a", 1)
	spec(t, dir, "b", 2)
	f := follow(t, newSource(t, Config{Dir: dir, ScanPeriod: 10 * time.Millisecond}))
	f.Await(t, "a:1@1 b:2@1")
	specs := filepath.Join(dir, filepath.Dir(recordstest.Spec("a")))
	must(t, os.Rename(specs, specs+"-away"))
	f.Await(t, "")
	if st := awaitStatus(t, f, func(st config.Status) bool { return st.Services == 0 }); st.Loss.Held != 2 || st.Loss.At.IsZero() || !st.Connected {
		t.Errorf("%+v; want a loss of two services", st)
	}
	must(t, os.Rename(specs+"-away", specs))
	f.AwaitStatus(t, "services that are back", func(st config.Status) bool { return st.Services == 2 && st.Loss == config.Loss{} })
}

func TestAFileThatIsLeftOutIsNamedOnce(t *testing.T) {
	dir := t.TempDir()
	spec(t, dir, "web", 1)
	spec(t, dir, "web.bak", 2)
	for i := range 2 * maxLeftOut {
		spec(t, dir, fmt.Sprintf("a%d.orig", i), 3)
	}
	log := recordstest.LogSince(t)
	s := newSource(t, Config{Dir: dir})
	out := make(chan registry.Update, 10)
	for range 3 {
		s.full = time.Time{}
		s.scan(t.Context(), out, newNotices(dir, true))
	}
	if n := len((<-out).Services); n != 1 {
		t.Errorf("%d services; want 1", n)
	}
	const line = " is left out: its name is that of a hidden, temporary or backup file"
	if n := strings.Count(log(), line); n != maxLeftOut {
		t.Errorf("%d lines; want %d, each file once:\n%s", n, maxLeftOut, log())
	}
}

// After every scan the source equals the directory, whatever was done to it in between.
func TestAfterEveryScanTheSourceEqualsTheDirectory(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "registry/services"), 0o755))
	s := newSource(t, Config{Dir: dir, SyncPeriod: time.Millisecond})
	s.lookAfter = 0
	none := newNotices(dir, true)
	out := make(chan registry.Update, 1)
	f := recordstest.NewFollower(s)
	keys := []string{"a", "b", "c", "team/a", "team/b", "dev/a"}
	written := make(map[string]int) // what each file holds: a port, or 0 for a bad value
	held := make(map[string]int)    // what is in force
	for range 400 {
		for range random.IntN(4) {
			key := keys[random.IntN(len(keys))]
			path := filepath.Join(dir, recordstest.Spec(key))
			switch n := random.IntN(10); {
			case n < 5:
				port := 1 + random.IntN(60000)
				if n < 3 {
					spec(t, dir, key, port)
				} else {
					must(t, os.MkdirAll(filepath.Dir(path), 0o755))
					must(t, os.WriteFile(path, []byte(recordstest.Port(port)), 0o644))
				}
				written[key] = port
			case n < 7:
				replace(t, dir, recordstest.Spec(key), strings.Repeat("{", 1+random.IntN(9)))
				written[key] = 0
			case n == 7:
				must(t, os.RemoveAll(path))
				delete(written, key)
			case n == 8:
				must(t, os.RemoveAll(filepath.Join(dir, registry.SpecsPrefix, "team")))
				delete(written, "team/a")
				delete(written, "team/b")
			}
		}
		for _, key := range keys {
			if port, there := written[key]; !there {
				delete(held, key)
			} else if port != 0 {
				held[key] = port
			}
		}
		revision := s.revision
		s.scan(t.Context(), out, none)
		select {
		case u := <-out:
			if u.Revision < revision || u.Revision != s.revision {
				t.Fatalf("revision %d after %d, and the source is at %d", u.Revision, revision, s.revision)
			}
			f.Add(u)
		default:
		}
		var want []string
		for key, port := range held {
			want = append(want, fmt.Sprintf("%s:%d", key, port))
		}
		got := strings.Fields(f.Show())
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Fatalf("the source has  %v\nthe directory %v", got, want)
		}
	}
}
