package filesource

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// An editor moves the old file away, or removes it, and writes it anew. A scan between the two must not close a port.
func TestAFileThatIsMissingForAMomentIsNotDeleted(t *testing.T) {
	dir := t.TempDir()
	spec(t, dir, "a", 1)
	path := filepath.Join(dir, recordstest.Spec("a"))
	synctest.Test(t, func(t *testing.T) {
		s := newSource(t, Config{Dir: dir})
		f := recordstest.NewFollower(s)
		f.Lives = true
		scan := func(want string) time.Duration {
			t.Helper()
			out := make(chan registry.Update, 1)
			wait := s.scan(t.Context(), out, newNotices(dir, true))
			select {
			case u := <-out:
				f.Add(u)
			default:
			}
			if got := f.Show(); got != want {
				t.Errorf("there is %q; want %q", got, want)
			}
			return wait
		}
		scan("a:1@1")
		must(t, os.Rename(path, path+"~"))
		if wait := scan("a:1@1"); wait != secondLook {
			t.Errorf("the next scan comes after %v; want %v", wait, secondLook)
		}
		time.Sleep(secondLook / 2)
		s.full = time.Time{} // a SET has it, too
		scan("a:1@1")
		must(t, os.WriteFile(path, []byte(recordstest.Port(2)), 0o644))
		time.Sleep(secondLook)
		if wait := scan("a:2@1"); wait != DefaultScanPeriod {
			t.Errorf("the next scan comes after %v; want %v: nothing is missing", wait, DefaultScanPeriod)
		}
		must(t, os.Remove(path))
		time.Sleep(scan("a:2@1"))
		scan("")
		must(t, os.WriteFile(path, []byte(recordstest.Port(2)), 0o644))
		scan("a:2@4") // another life
	})
}

// TestAFileThatIsWrittenAtTheSecondLookIsNotDeleted: it is there. It is deleted if it goes before it could be read.
func TestAFileThatIsWrittenAtTheSecondLookIsNotDeleted(t *testing.T) {
	for _, stays := range []bool{true, false} {
		dir := t.TempDir()
		spec(t, dir, "a", 1)
		path := filepath.Join(dir, recordstest.Spec("a"))
		synctest.Test(t, func(t *testing.T) {
			s := newSource(t, Config{Dir: dir})
			f := recordstest.NewFollower(s)
			f.Lives = true
			scan := func(want string) {
				t.Helper()
				out := make(chan registry.Update, 1)
				s.scan(t.Context(), out, newNotices(dir, true))
				select {
				case u := <-out:
					f.Add(u)
				default:
				}
				if got := f.Show(); got != want {
					t.Errorf("there is %q; want %q", got, want)
				}
			}
			scan("a:1@1")
			must(t, os.Remove(path))
			scan("a:1@1")
			must(t, os.WriteFile(path, []byte(recordstest.Port(2)[:9]), 0o644))
			s.tree.Reading = func() {
				s.tree.Reading = nil
				must(t, os.WriteFile(path, []byte(recordstest.Port(2)), 0o644))
			}
			time.Sleep(secondLook)
			scan("a:1@1")
			if stays {
				time.Sleep(soon)
				scan("a:2@1") // the same life
				return
			}
			must(t, os.Remove(path))
			time.Sleep(secondLook - 1)
			scan("a:1@1")
			time.Sleep(time.Nanosecond)
			scan("")
		})
	}
}

// A volume's links are removed and made again by hand. Without a swap of ..data that is like the removal of any file.
func TestALinkThatIsMissingForAMomentIsNotDeleted(t *testing.T) {
	inVolume(t, func(specs string, scan func(want string) *Source) {
		a := filepath.Join(specs, "a")
		scan("a:1@1 b:1@1")
		must(t, os.Remove(a))
		scan("a:1@1 b:1@1")
		time.Sleep(secondLook / 2)
		must(t, os.Symlink("..data/a", a))
		scan("a:1@1 b:1@1")
		time.Sleep(secondLook)
		scan("a:1@1 b:1@1")
		must(t, os.Remove(a))
		scan("a:1@1 b:1@1")
		time.Sleep(secondLook)
		scan("b:1@1")
	})
}

// Who swaps ..data by removing it first leaves a moment, of any length, in which it leads nowhere.
func TestDataThatLeadNowhereChangeNothing(t *testing.T) {
	inVolume(t, func(specs string, scan func(want string) *Source) {
		data := filepath.Join(specs, "..data")
		scan("a:1@1 b:1@1")
		must(t, os.Remove(data))
		for range 3 {
			s := scan("a:1@1 b:1@1")
			if st := s.Status(); st.Connected || st.Cause != causes[unreadable] {
				t.Errorf("without ..data the status is %+v", st)
			}
			time.Sleep(secondLook)
		}
		must(t, os.Symlink("..v2", data))
		if s := scan("a:2@1"); !s.Status().Connected { // b goes in the step of the swap
			t.Errorf("with ..data the status is %+v", s.Status())
		}
	})
}

// inVolume runs a test in fake time on a volume of two services, a and b, of whom version ..v2 has a alone.
func inVolume(t *testing.T, test func(specs string, scan func(want string) *Source)) {
	t.Helper()
	dir := t.TempDir()
	specs := filepath.Join(dir, filepath.Dir(recordstest.Spec("a")))
	for file, port := range map[string]int{"..v1/a": 1, "..v1/b": 1, "..v2/a": 2} {
		path := filepath.Join(specs, file)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(recordstest.Port(port)), 0o644))
	}
	for link, target := range map[string]string{"..data": "..v1", "a": "..data/a", "b": "..data/b"} {
		must(t, os.Symlink(target, filepath.Join(specs, link)))
	}
	synctest.Test(t, func(t *testing.T) {
		s, out := newSource(t, Config{Dir: dir}), make(chan registry.Update, 1)
		f := recordstest.NewFollower(s)
		f.Lives = true
		test(specs, func(want string) *Source {
			t.Helper()
			s.scan(t.Context(), out, newNotices(dir, true))
			select {
			case u := <-out:
				f.Add(u)
			default:
			}
			if got := f.Show(); got != want {
				t.Errorf("there is %q; want %q", got, want)
			}
			return s
		})
	})
}

// What a swapped ..data link deletes is deleted in the step that has the rest of the swap, wherever the link is.
func TestASwappedDataLinkDeletesInTheSameStep(t *testing.T) {
	const specs = "registry/services/specs"
	for _, tt := range []struct {
		name  string
		at    string // of the volume, below the directory
		below string // where the records are in it
		links []string
	}{
		{"of the records", specs, "", []string{"a", "b"}},
		{"of the whole directory", "", specs, []string{"registry"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			at := filepath.Join(dir, tt.at)
			for version, name := range map[string]string{"..v1": "a", "..v2": "b"} {
				records := filepath.Join(at, version, tt.below)
				must(t, os.MkdirAll(records, 0o755))
				must(t, os.WriteFile(filepath.Join(records, name), []byte(recordstest.Port(80)), 0o644))
			}
			for _, link := range tt.links {
				must(t, os.Symlink("..data/"+link, filepath.Join(at, link)))
			}
			must(t, os.Symlink("..v1", filepath.Join(at, "..data")))
			s, out, none := newSource(t, Config{Dir: dir}), make(chan registry.Update, 1), newNotices(dir, true)
			s.scan(t.Context(), out, none)
			<-out
			must(t, os.Symlink("..v2", filepath.Join(at, "..next")))
			must(t, os.Rename(filepath.Join(at, "..next"), filepath.Join(at, "..data")))
			s.scan(t.Context(), out, none)
			if u := <-out; len(u.Services) != 2 {
				t.Errorf("%d changes in the step of a swap; want one that is new and one that is gone", len(u.Services))
			}
		})
	}
}

// Others may write beside the records as much as they like.
func TestOnlyNoticesThatCanBeAboutRecordsBringAScan(t *testing.T) {
	dir := t.TempDir()
	n := newNotices(dir, true)
	for path, want := range map[string]bool{
		"":                                 true,
		"registry":                         true,
		"registry/services":                true,
		"registry/services/specs":          true,
		"registry/services/specs/web":      true,
		"registry/services/specs/team/web": true,
		"..data":                           true,
		"registry/..data":                  true,
		"registry/services/specs/..data":   true,
		"registry/services/specs/web.tmp":  false,
		"registry/services/specs/.web.swp": false,
		"proxy.log":                        false,
		"registry/events":                  false,
		"registry-old":                     false,
		"..2026":                           false,
		"../beside":                        false,
	} {
		if got := n.matters(filepath.Join(dir, path)); got != want {
			t.Errorf("a notice of %q brings a scan: %v; want %v", path, got, want)
		}
	}
}

// The directory above is watched only while it has to tell that the directory comes, or that a link leads elsewhere.
func TestTheDirectoryAboveIsWatchedOnlyWhereItMatters(t *testing.T) {
	base := t.TempDir()
	dir, link := filepath.Join(base, "dir"), filepath.Join(base, "link")
	must(t, os.Symlink("dir", link))
	watches := func(dir string) bool {
		n := newNotices(dir, false)
		defer n.close()
		n.follow(nil)
		return slices.Contains(n.watcher.WatchList(), base)
	}
	if !watches(dir) {
		t.Error("a directory that is not there would not be noticed")
	}
	must(t, os.Mkdir(dir, 0o755))
	if watches(dir) {
		t.Error("the directory above is watched though the directory is there")
	}
	if !watches(link) {
		t.Error("a link that leads elsewhere would not be noticed")
	}
}

func TestADirectoryThatIsReplacedIsFollowed(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "dir")
	spec(t, dir, "a", 1)
	f := follow(t, newSource(t, Config{Dir: dir, ScanPeriod: time.Hour, SyncPeriod: time.Hour}))
	f.Await(t, "a:1@1")
	for i := 2; i < 5; i++ {
		next := filepath.Join(base, "next")
		spec(t, next, "a", i)
		must(t, os.Rename(dir, filepath.Join(base, "old"+string(rune('0'+i)))))
		must(t, os.Rename(next, dir))
		f.Await(t, "a:"+string(rune('0'+i))+"@1")
	}
	spec(t, dir, "a", 9) // its own notices are heard, too
	f.Await(t, "a:9@1")
}
