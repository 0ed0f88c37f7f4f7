package keyfiles

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"kubeproxy/registry"
)

const top = "registry/services/"

// write makes a file, and the directories that it lies in.
func write(t *testing.T, dir, at, text string) {
	t.Helper()
	path := filepath.Join(dir, at)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// scan makes a scan and shows it: "specs/web=VALUE", "specs/web!ERROR", "-specs/web" for what is gone, "~specs/web" for what was swapped.
func scan(t *testing.T, tree *Tree, all bool) string {
	t.Helper()
	found, err := tree.Scan(all)
	if err != nil {
		return err.Error()
	}
	var shown []string
	for _, f := range slices.Concat(found.Changed, found.Unread) {
		key := strings.TrimPrefix(f.Key, registry.Prefix)
		if f.Err != nil {
			shown = append(shown, key+"!"+f.Err.Error())
		} else {
			shown = append(shown, key+"="+string(f.Value))
		}
	}
	for _, key := range found.Gone {
		shown = append(shown, "-"+strings.TrimPrefix(key, registry.Prefix))
	}
	for _, key := range found.Swapped {
		shown = append(shown, "~"+strings.TrimPrefix(key, registry.Prefix))
	}
	if found.Moving {
		shown = append(shown, "moving")
	}
	if found.Torn {
		shown = append(shown, "torn")
	}
	return strings.Join(shown, " ")
}

func expect(t *testing.T, tree *Tree, want string) {
	t.Helper()
	if got := scan(t, tree, false); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAScanSaysWhatHasChangedSinceTheLast(t *testing.T) {
	dir := t.TempDir()
	tree := &Tree{Dir: dir}
	write(t, dir, top+"specs/b", "1")
	write(t, dir, top+"specs/a/b", "2")
	write(t, dir, top+"other", "3")
	write(t, dir, "registry/elsewhere", "4")
	expect(t, tree, "other=3 specs/a/b=2 specs/b=1")
	expect(t, tree, "")
	write(t, dir, top+"specs/b", "5")
	write(t, dir, top+"endpoints/b", "6")
	must(t, os.RemoveAll(filepath.Join(dir, top, "specs/a")))
	expect(t, tree, "endpoints/b=6 specs/b=5 -specs/a/b")
	write(t, dir, top+"specs/b", "5") // the same again
	expect(t, tree, "")
	must(t, os.Remove(filepath.Join(dir, top, "specs/b")))
	write(t, dir, top+"specs/b/c", "7") // a directory where a file was
	expect(t, tree, "specs/b/c=7 -specs/b")
}

// A value that is written within one tick of the file system's clock has the looks of the one before. Only a file that was left alone
// for a while is believed by its looks.
func TestAFileThatWasJustWrittenIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	tree := &Tree{Dir: dir}
	write(t, dir, top+"specs/a", "1")
	path := filepath.Join(dir, top, "specs/a")
	info, err := os.Stat(path)
	must(t, err)
	expect(t, tree, "specs/a=1")
	write(t, dir, top+"specs/a", "2")
	must(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	expect(t, tree, "specs/a=2")

	old := info.ModTime().Add(-2 * settled)
	must(t, os.Chtimes(path, old, old))
	expect(t, tree, "")
	write(t, dir, top+"specs/a", "3")
	must(t, os.Chtimes(path, old, old))
	expect(t, tree, "")
	if got := scan(t, tree, true); got != "specs/a=3" {
		t.Errorf("a full scan: %s", got)
	}
}

func TestHiddenTemporaryAndBackupFilesAreLeftOut(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"web", ".web", ".web.swp", "web~", "web.tmp", "web.bak", "web.orig", "web.rej", "#web#", ".git/web", "old.tmp/web", "..one/web", "webtmp", "bak", "web.v2"} {
		write(t, dir, top+"specs/"+name, "1")
	}
	tree := &Tree{Dir: dir}
	found, err := tree.Scan(true)
	must(t, err)
	var names []string
	for _, key := range found.LeftOut {
		names = append(names, filepath.Base(key))
	}
	if got, want := strings.Join(names, " "), "#web# .git .web .web.swp old.tmp web.bak web.orig web.rej web.tmp web~"; got != want {
		t.Errorf("left out: %s\nwant      %s", got, want)
	}
	if found, err = tree.Scan(false); err != nil || len(found.LeftOut) > 0 {
		t.Errorf("a scan that does not read everything: %q, %v", found.LeftOut, err)
	}
	expect(t, &Tree{Dir: dir}, "specs/bak=1 specs/web=1 specs/web.v2=1 specs/webtmp=1")
}

func TestOnlyLinksThroughDataAreFollowedAndNoneLeadsOut(t *testing.T) {
	dir := t.TempDir()
	const no = "!a symbolic link where a file is wanted"
	write(t, dir, "secret", "secret")
	write(t, dir, top+"specs/..one/web", "1")
	write(t, dir, top+"specs/..one/team/api", "2")
	for link, target := range map[string]string{
		"..data": "..one", "web": "..data/web", "team": "..data/team", "gone": "..data/gone",
		"beside": "web", "up": "../../../secret", "through": "..data/../../../../secret", "absolute": filepath.Join(dir, "secret"), "loop": "..data/../loop",
	} {
		must(t, os.Symlink(target, filepath.Join(dir, top, "specs", link)))
	}
	must(t, os.Symlink("../web", filepath.Join(dir, top, "specs/..one/inner")))
	must(t, os.Symlink("..data/inner", filepath.Join(dir, top, "specs/inner")))
	tree := &Tree{Dir: dir}
	expect(t, tree, strings.Join([]string{
		"specs/absolute" + no, "specs/beside" + no, "specs/inner" + no, "specs/loop!path escapes from parent",
		"specs/team/api=2", "specs/through!path escapes from parent", "specs/up" + no, "specs/web=1",
	}, " "))

	// Data that lead out of the directory are not read.
	outside := t.TempDir()
	write(t, outside, "web", "secret")
	must(t, os.Remove(filepath.Join(dir, top, "specs/..data")))
	must(t, os.Symlink(outside, filepath.Join(dir, top, "specs/..data")))
	if got := scan(t, tree, true); strings.Contains(got, "secret") || !strings.Contains(got, "specs/web!path escapes from parent") {
		t.Errorf("data outside: %s", got)
	}
}

// A volume of Kubernetes may begin anywhere: at the top, links lead to the directories.
func TestAVolumeMayHoldTheWholeTree(t *testing.T) {
	dir := t.TempDir()
	for _, version := range []string{"1", "2"} {
		write(t, dir, "..v"+version+"/"+top+"specs/web", version)
	}
	must(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/registry", filepath.Join(dir, "registry")))
	tree := &Tree{Dir: dir}
	expect(t, tree, "specs/web=1")
	must(t, os.Symlink("..v2", filepath.Join(dir, "..new")))
	must(t, os.Rename(filepath.Join(dir, "..new"), filepath.Join(dir, "..data")))
	expect(t, tree, "specs/web=2")
}

// TestAVolumeOfTheWholeTreeDeletesAndTearsLikeAnyOther: what a swap leaves behind is gone with it, and a version that is removed while it is read
// loses nothing.
func TestAVolumeOfTheWholeTreeDeletesAndTearsLikeAnyOther(t *testing.T) {
	for _, link := range []string{"registry", "registry/services"} {
		t.Run(link, func(t *testing.T) {
			dir := t.TempDir()
			v := volume{t, filepath.Join(dir, filepath.Dir(link))}
			below := strings.TrimPrefix(top, strings.TrimPrefix(filepath.Dir(link)+"/", "./"))
			for _, file := range []string{"..v1/a", "..v1/b", "..v2/b", "..v3/b", "..v3/c"} {
				write(t, v.at, filepath.Join(filepath.Dir(file), below, "specs", filepath.Base(file)), file)
			}
			v.link(filepath.Base(link))
			v.swap("..v1")
			tree := &Tree{Dir: dir}
			expect(t, tree, "specs/a=..v1/a specs/b=..v1/b")
			v.swap("..v2")
			expect(t, tree, "specs/b=..v2/b ~specs/a")
			tree.Reading = func() { v.swap("..v3"); v.remove("..v2"); tree.Reading = nil }
			expect(t, tree, "moving torn")
			expect(t, tree, "specs/b=..v3/b specs/c=..v3/c")
			expect(t, tree, "")
		})
	}
}

// However often the link is swapped meanwhile, a scan never mixes two versions.
func TestOneScanReadsOneVersionOfLinkedData(t *testing.T) {
	dir := t.TempDir()
	specs := filepath.Join(dir, top, "specs")
	const files = 50
	for _, version := range []string{"..v1", "..v2"} {
		for i := range files {
			write(t, specs, fmt.Sprintf("%s/s%d", version, i), version)
		}
	}
	for i := range files {
		must(t, os.Symlink(fmt.Sprintf("..data/s%d", i), filepath.Join(specs, fmt.Sprintf("s%d", i))))
	}
	must(t, os.Symlink("..v1", filepath.Join(specs, "..data")))
	stop := make(chan struct{})
	var swaps sync.WaitGroup
	swaps.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			link := filepath.Join(specs, "..next")
			if err := errors.Join(os.Symlink(fmt.Sprintf("..v%d", 1+i%2), link), os.Rename(link, filepath.Join(specs, "..data"))); err != nil {
				t.Error(err)
				return
			}
		}
	})
	defer swaps.Wait()
	defer close(stop)
	for range 100 {
		found, err := (&Tree{Dir: dir}).Scan(true)
		must(t, err)
		if len(found.Changed) != files {
			t.Fatalf("%d files; want %d", len(found.Changed), files)
		}
		for _, f := range found.Changed {
			if string(f.Value) != string(found.Changed[0].Value) {
				t.Fatalf("%s is of %s, and %s of %s", f.Key, f.Value, found.Changed[0].Key, found.Changed[0].Value)
			}
		}
	}
}

func TestAFileThatChangesWhileItIsReadCountsAsUnchanged(t *testing.T) {
	dir := t.TempDir()
	tree := &Tree{Dir: dir}
	write(t, dir, top+"specs/a", "1")
	expect(t, tree, "specs/a=1")
	write(t, dir, top+"specs/a", "22")
	write(t, dir, top+"specs/b", "3")
	tree.Reading = func() { write(t, dir, top+"specs/a", "4444"); write(t, dir, top+"specs/b", "5555") }
	expect(t, tree, "moving")
	tree.Reading = nil
	expect(t, tree, "specs/a=4444 specs/b=5555")
}

// While a directory cannot be read it is unknown what is below it: nothing of a scan counts then.
func TestWhatCannotBeReadDoesNotMakeFilesGo(t *testing.T) {
	dir := t.TempDir()
	tree := &Tree{Dir: dir}
	write(t, dir, top+"specs/a", "1")
	write(t, dir, top+"endpoints/a", "2")
	expect(t, tree, "endpoints/a=2 specs/a=1")
	specs := filepath.Join(dir, top, "specs")
	must(t, os.Rename(specs, specs+".tmp"))
	write(t, dir, top+"endpoints/a", "3")
	must(t, os.Symlink("specs.tmp", specs))
	expect(t, tree, "endpoints/a=3 specs!a symbolic link where a file is wanted")
	must(t, os.Remove(specs))
	write(t, dir, top+"specs", "a file")
	expect(t, tree, "endpoints/a=3 specs!a file where a directory is wanted")
	must(t, os.Remove(specs))
	must(t, os.Rename(specs+".tmp", specs))
	expect(t, tree, "endpoints/a=3")
}

func TestADirectoryBeyondALimitIsAnErrorAndChangesNothing(t *testing.T) {
	dir := t.TempDir()
	tree := &Tree{Dir: dir, files: 4}
	write(t, dir, top+"specs/a", "1")
	write(t, dir, top+"specs/b", "2")
	expect(t, tree, "specs/a=1 specs/b=2")
	write(t, dir, top+"specs/.hidden", "3")
	write(t, dir, top+"specs/c", "4")
	if got, want := scan(t, tree, false), " is too large: it has more than 4 files"; !strings.HasSuffix(got, want) {
		t.Errorf("got %s, want %s", got, want)
	}
	must(t, os.Remove(filepath.Join(dir, top, "specs/b")))
	expect(t, tree, "specs/c=4 -specs/b")

	tree.files = 0
	for i := range MaxBytes/registry.MaxRecordBytes + 1 {
		path := filepath.Join(dir, top, "specs", fmt.Sprintf("large%d", i))
		must(t, os.WriteFile(path, nil, 0o644))
		must(t, os.Truncate(path, registry.MaxRecordBytes))
	}
	if _, err := tree.Scan(false); !errors.Is(err, ErrTooLarge) || !strings.Contains(err.Error(), "more than 268435456 bytes") {
		t.Errorf("got %v", err)
	}
}

func TestDirectoriesAreFollowedOnlySoDeep(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, top+"specs/a/b/c/d/e/f/g/h/i/j", "1")
	write(t, dir, top+"specs/a/b/c/d/e/f/g/x", "2")
	expect(t, &Tree{Dir: dir}, "specs/a/b/c/d/e/f/g/h!directories are nested more than 8 deep specs/a/b/c/d/e/f/g/x=2")
}
