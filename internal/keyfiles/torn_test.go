package keyfiles

import (
	"os"
	"path/filepath"
	"testing"
)

// A volume is a directory as kubelet writes it: versions, and a link ..data to the one that is in force.
type volume struct {
	t  *testing.T
	at string
}

// swap puts a version in force, as one rename.
func (v volume) swap(version string) {
	v.t.Helper()
	next := filepath.Join(v.at, "..data_tmp")
	must(v.t, os.Symlink(version, next))
	must(v.t, os.Rename(next, filepath.Join(v.at, DataLink)))
}

// remove removes a version, or a part of it.
func (v volume) remove(version string) {
	v.t.Helper()
	must(v.t, os.RemoveAll(filepath.Join(v.at, version)))
}

// link makes names that lead through ..data.
func (v volume) link(names ...string) {
	v.t.Helper()
	for _, name := range names {
		must(v.t, os.Symlink(DataLink+"/"+name, filepath.Join(v.at, name)))
	}
}

// Kubelet swaps ..data and removes the version before. A scan that was reading this one takes nothing for gone, wherever it meets
// the removal; the next scan has the new version, and says what that does not have any more.
func TestAScanWhoseDataAreRemovedSaysNothing(t *testing.T) {
	for _, c := range []struct {
		name   string
		files  []string // of each version
		links  []string
		remove []string // of the first version, when it is no longer in force; that is all of it at last
		one    string
		two    string
	}{
		{
			name:  "linked files",
			files: []string{"a", "b", "c"}, links: []string{"a", "b", "c"},
			remove: []string{"..v1"},
			one:    "specs/a=..v1 specs/b=..v1 specs/c=..v1", two: "specs/a=..v2 specs/b=..v2 specs/c=..v2",
		}, {
			name:  "a linked directory of files",
			files: []string{"team/a", "team/b", "team/c"}, links: []string{"team"},
			remove: []string{"..v1"},
			one:    "specs/team/a=..v1 specs/team/b=..v1 specs/team/c=..v1", two: "specs/team/a=..v2 specs/team/b=..v2 specs/team/c=..v2",
		}, {
			name:  "a linked directory of one file",
			files: []string{"team/a"}, links: []string{"team"},
			remove: []string{"..v1"},
			one:    "specs/team/a=..v1", two: "specs/team/a=..v2",
		}, {
			name:  "directories below a linked one",
			files: []string{"team/a/x", "team/b/x", "team/c/x"}, links: []string{"team"},
			remove: []string{"..v1"},
			one:    "specs/team/a/x=..v1 specs/team/b/x=..v1 specs/team/c/x=..v1", two: "specs/team/a/x=..v2 specs/team/b/x=..v2 specs/team/c/x=..v2",
		}, {
			name:  "directories that are empty already, and still there",
			files: []string{"team/a/x", "team/b/x"}, links: []string{"team"},
			remove: []string{"..v1/team/a/x", "..v1/team/b/x"},
			one:    "specs/team/a/x=..v1 specs/team/b/x=..v1", two: "specs/team/a/x=..v2 specs/team/b/x=..v2",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			v := volume{t, filepath.Join(dir, top, "specs")}
			for _, version := range []string{"..v1", "..v2"} {
				for _, file := range c.files {
					write(t, v.at, version+"/"+file, version)
				}
			}
			v.link(c.links...)
			v.swap("..v1")
			tree := &Tree{Dir: dir}
			during := func() {
				tree.Reading = nil
				v.swap("..v2")
				for _, part := range c.remove {
					v.remove(part)
				}
			}
			tree.Reading = during
			expect(t, tree, "moving torn")
			expect(t, tree, c.two)
			v.remove("..v1")

			tree = &Tree{Dir: dir} // once more, with a version that is known
			for _, file := range c.files {
				write(t, v.at, "..v1/"+file, "..v1")
			}
			v.swap("..v1")
			expect(t, tree, c.one)
			tree.Reading = during
			expect(t, tree, "moving torn")
			expect(t, tree, c.two)
			expect(t, tree, "")
		})
	}
}

// What the version in force does not have is gone: also when it was removed from it since, and beside links that lead nowhere.
func TestALinkThatLeadsNowhereDoesNotTearAScan(t *testing.T) {
	dir := t.TempDir()
	v := volume{t, filepath.Join(dir, top, "specs")}
	for _, file := range []string{"..v1/a", "..v1/b", "..v2/a"} {
		write(t, v.at, file, file)
	}
	v.link("a", "b", "gone")
	v.swap("..v1")
	tree := &Tree{Dir: dir}
	expect(t, tree, "specs/a=..v1/a specs/b=..v1/b")
	v.swap("..v2")
	expect(t, tree, "specs/a=..v2/a ~specs/b")
	expect(t, tree, "")
	v.remove("..v2/a")
	expect(t, tree, "-specs/a")
	must(t, os.Remove(filepath.Join(v.at, DataLink)))
	expect(t, tree, "specs/!its link ..data leads nowhere")
	v.swap("..nowhere")
	expect(t, tree, "specs/!its link ..data leads nowhere")
}

// A key is swapped only if ..data leads to another directory than before. Otherwise somebody removed its link, and may be about to make it anew.
func TestALinkThatIsRemovedWithoutASwapIsGoneAndNotSwapped(t *testing.T) {
	for _, c := range []struct {
		name   string
		at     string // of the volume, below the directory
		within string // a version of it, above the files
		links  []string
		remove string // a link, or what it leads to
	}{
		{name: "of a file", at: top + "specs", links: []string{"a", "b"}, remove: "a"},
		{name: "of the last file", at: top + "specs", links: []string{"a"}, remove: "a"},
		{name: "of a directory", at: top, within: "specs", links: []string{"specs"}, remove: "specs"},
		{name: "the file", at: top + "specs", links: []string{"a", "b"}, remove: "..v1/a"},
		{name: "the file in a volume of the whole tree", within: top + "specs", links: []string{"registry"}, remove: "..v1/" + top + "specs/a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			v := volume{t, filepath.Join(dir, c.at)}
			for _, version := range []string{"..v1", "..v2"} {
				write(t, v.at, filepath.Join(version, c.within, "a"), version)
			}
			write(t, v.at, filepath.Join("..v3", c.within, "b"), "..v3")
			v.link(c.links...)
			v.swap("..v1")
			tree := &Tree{Dir: dir}
			expect(t, tree, "specs/a=..v1")
			v.remove(c.remove)
			expect(t, tree, "-specs/a")
			v.swap("..v2")
			if c.remove == c.links[0] {
				v.link(c.remove)
			}
			expect(t, tree, "specs/a=..v2")
			v.swap("..v3") // without a link that leads to something in it, too
			if got := scan(t, tree, false); got != "~specs/a" && got != "specs/b=..v3 ~specs/a" {
				t.Errorf("a swap: %s", got)
			}
		})
	}
}

// Kubelet removes the links that a swap has made stale. The swap deletes their keys all the same, also when no link is left.
func TestASwapDeletesAlsoWhatHasNoLinkAnyMore(t *testing.T) {
	dir := t.TempDir()
	v := volume{t, filepath.Join(dir, top, "specs")}
	write(t, v.at, "..v1/a", "1")
	write(t, v.at, "..v2/other", "2")
	v.link("a")
	v.swap("..v1")
	tree := &Tree{Dir: dir}
	expect(t, tree, "specs/a=1")
	v.swap("..v2")
	v.remove("a")
	expect(t, tree, "~specs/a")
}

// The inner volume goes with the version that it was in.
func TestASwapDeletesAlsoWhatAVolumeInItHad(t *testing.T) {
	dir := t.TempDir()
	outer := volume{t, filepath.Join(dir, "registry")}
	write(t, outer.at, "..v2/services/specs/c", "2")
	inner := volume{t, filepath.Join(outer.at, "..v1/services/specs")}
	write(t, inner.at, "..v1/a", "1")
	inner.link("a")
	inner.swap("..v1")
	outer.link("services")
	outer.swap("..v1")
	tree := &Tree{Dir: dir}
	expect(t, tree, "specs/a=1")
	outer.swap("..v2")
	expect(t, tree, "specs/c=2 ~specs/a")
}

// A swap that is not one rename has a moment without ..data. What the link led to before is what the next scan compares with.
func TestADirectoryWhoseDataLeadNowhereCannotBeRead(t *testing.T) {
	const nowhere = "specs/!its link ..data leads nowhere"
	dir := t.TempDir()
	v := volume{t, filepath.Join(dir, top, "specs")}
	for _, file := range []string{"..v1/a", "..v1/b", "..v2/b"} {
		write(t, v.at, file, file)
	}
	v.link("a", "b")
	tree := &Tree{Dir: dir}
	expect(t, tree, nowhere)
	v.swap("..v1")
	expect(t, tree, "specs/a=..v1/a specs/b=..v1/b")
	v.remove(DataLink)
	expect(t, tree, nowhere)
	v.swap("..v1")
	expect(t, tree, "")
	v.swap("..nowhere")
	expect(t, tree, nowhere)
	v.swap("..v2")
	expect(t, tree, "specs/b=..v2/b ~specs/a")
	v.remove(DataLink)
	expect(t, tree, nowhere)
	v.remove("a")
	v.remove("b")
	expect(t, tree, "-specs/b") // nothing needs the link
}

func TestATornScanNamesItsDirectories(t *testing.T) {
	dir := t.TempDir()
	v := volume{t, filepath.Join(dir, top, "specs")}
	write(t, v.at, "..v1/a", "1")
	write(t, v.at, "..v1/b", "1")
	v.link("a", "b")
	v.swap("..v1")
	tree := &Tree{Dir: dir}
	tree.Reading = func() { v.swap("..v2"); v.remove("..v1"); tree.Reading = nil }
	found, err := tree.Scan(false)
	must(t, err)
	if !found.Torn || len(found.Dirs) != 2 || found.Dirs[1] != v.at {
		t.Errorf("torn %v, directories %q; want both above the files", found.Torn, found.Dirs)
	}
}
