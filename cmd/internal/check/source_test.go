package check

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/registry"
)

// write makes a file in a directory, and the directories that it lies in.
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

func TestThePathOfAFileIsItsKey(t *testing.T) {
	dir := t.TempDir()
	const top = "registry/services/"
	write(t, dir, top+"specs/web", `{"port":8000}`)
	write(t, dir, top+"specs/prod/web", `{"port":8001}`)
	write(t, dir, top+"endpoints/web", "")
	write(t, dir, top+"README", "not ours")
	write(t, dir, top+"specs/a b\n", "odd, but a key")
	write(t, dir, "registry/pods/x", "not looked at")
	write(t, dir, "specs/x", "not looked at")
	if err := os.Mkdir(filepath.Join(dir, top, "specs", "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	r, err := FromDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]string)
	for _, record := range r.Records {
		if record.Err != nil || record.Created != 0 {
			t.Errorf("%+v", record)
		}
		got[record.Key] = string(record.Value)
	}
	want := map[string]string{
		registry.SpecsPrefix + "web":      `{"port":8000}`,
		registry.SpecsPrefix + "prod/web": `{"port":8001}`,
		registry.EndpointsPrefix + "web":  "",
		registry.Prefix + "README":        "not ours",
		registry.SpecsPrefix + "a b\n":    "odd, but a key",
	}
	for key, value := range want {
		if v, ok := got[key]; !ok || v != value {
			t.Errorf("%q has the value %q, want %q", key, v, value)
		}
	}
	if len(got) != len(want) || r.Revision != 0 || !strings.Contains(r.Source, "directory ") {
		t.Errorf("%d keys of %s at revision %d", len(got), r.Source, r.Revision)
	}
}

// What is no regular file is not opened: a pipe would have us wait for ever, a link could lead to
// anything.
// A record in the wrong directory has no effect, and the report says so.
func TestWhatLiesOutsideTheRegistryIsNamed(t *testing.T) {
	dir := t.TempDir()
	for _, at := range []string{"registry/services/specs/web", "registry/services/endpoints/web", "registry/specs/db", "specs/a", "b.json", ".git/x", "..v1/x"} {
		write(t, dir, at, `{"port":8000,"endpoints":["10.0.0.1:80"]}`)
	}
	report := func() (all []Finding) {
		r, err := FromDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range Examine(r, Options{}).Findings {
			if f.Code == Elsewhere {
				all = append(all, f)
			}
		}
		return all
	}
	want := []Finding{{Info, Elsewhere, `not read, because only what is below registry/services has keys: "b.json", "specs", "registry/specs"`}}
	if got := report(); !slices.Equal(got, want) {
		t.Errorf("got %v\nwant %v", got, want)
	}
	for _, name := range []string{"b.json", "specs", "registry/specs"} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := report(); len(got) > 0 {
		t.Errorf("of a directory with nothing else: %v", got)
	}
}

func TestFilesThatANodeLeavesOutAreIgnoredAndNamed(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"web.bak", ".web.swp"} {
		write(t, dir, "registry/services/specs/"+name, `{"port":8000}`)
	}
	for _, records := range []int{0, 1} {
		r, err := FromDirectory(dir)
		if err != nil {
			t.Fatal(err)
		}
		report := Examine(r, Options{})
		if s := report.Summary; s.Ignored != 2 || s.Services != records || (len(report.Findings) == 0) != (records > 0) || report.Failed(false) {
			t.Errorf("with %d records: %+v", records, report)
		}
		if f := report.Records[0]; f.Key != "/registry/services/specs/.web.swp" || f.Findings[0].Code != LeftOut {
			t.Errorf("%+v", f)
		}
		write(t, dir, "registry/services/specs/web", `{"port":8000}`)
	}
}

func TestADirectoryCanHoldAnythingAndNothingStopsIt(t *testing.T) {
	dir := t.TempDir()
	const specs = "registry/services/specs/"
	at := func(name string) string { return filepath.Join(dir, specs, name) }
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write(t, dir, "secret", `{"port":7000}`)
	write(t, dir, "elsewhere/web", `{"port":7001}`)
	write(t, dir, specs+"good", `{"port":8000}`)
	must(syscall.Mkfifo(at("pipe"), 0o644))
	must(os.Symlink(filepath.Join(dir, "secret"), at("link")))
	must(os.Symlink(filepath.Join(dir, "elsewhere"), at("ns")))
	must(os.Symlink(".", at("loop")))
	must(os.Symlink("nowhere", at("dangling\x1b[31m")))
	must(os.Symlink("/dev/zero", at("zero")))
	write(t, dir, specs+"huge", "")
	must(os.Truncate(at("huge"), 1<<40))
	write(t, dir, specs+"long", strings.Repeat(" ", registry.MaxRecordBytes+1))
	write(t, dir, specs+"longest", strings.Repeat(" ", registry.MaxRecordBytes))
	listener, err := net.Listen("unix", filepath.Join(t.TempDir(), "s")) // the path below dir may be too long for a socket
	must(err)
	defer listener.Close()
	must(os.Rename(listener.Addr().String(), at("socket")))
	want := map[string]string{
		"good":              "",
		"pipe":              "a pipe where a file is wanted",
		"link":              "a symbolic link where a file is wanted",
		"ns":                "a symbolic link where a file is wanted",
		"loop":              "a symbolic link where a file is wanted",
		"dangling\x1b[31m":  "a symbolic link where a file is wanted",
		"zero":              "a symbolic link where a file is wanted",
		"huge":              "file of 1099511627776 bytes is longer than the limit of 1572864",
		"long":              "file of 1572865 bytes is longer than the limit of 1572864",
		"longest":           "", // read, and refused as a record
		"socket":            "a socket where a file is wanted",
		"locked":            "permission denied",
		"locked directory/": "permission denied",
	}
	write(t, dir, specs+"locked", `{"port":8000}`)
	must(os.Chmod(at("locked"), 0))
	write(t, dir, specs+"locked directory/web", `{"port":8000}`)
	must(os.Chmod(at("locked directory"), 0))
	t.Cleanup(func() { _ = os.Chmod(at("locked directory"), 0o755) }) // or it could not be removed
	must(os.Chmod(filepath.Dir(dir), 0o755))
	must(os.Chmod(dir, 0o755))
	var r Registry
	asNobody(t, func() { r, err = FromDirectory(dir) })
	must(err)
	for _, record := range r.Records {
		name := strings.TrimPrefix(record.Key, registry.SpecsPrefix)
		why, ok := want[name]
		delete(want, name)
		got := ""
		if record.Err != nil {
			got = record.Err.Error()
		}
		if !ok || got != why {
			t.Errorf("%q: %q, want %q", name, got, why)
		}
		if record.Err != nil && record.Value != nil {
			t.Errorf("%q has a value", name)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	report := Examine(r, Options{})
	checkReport(t, report)
	for _, v := range report.Records {
		if good := v.Key == registry.SpecsPrefix+"good"; (v.Verdict == Error) == good {
			t.Errorf("%s: %s", v.Key, v.Verdict)
		}
	}
}

// Were it taken for a key of another program, all that lies behind it would be missing without a word.
func TestAWholeBranchThatCannotBeReadIsAnError(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "elsewhere/web", `{"port":8000}`)
	write(t, dir, "registry/services/endpoints/web", `{"endpoints":["10.0.0.1:80"]}`)
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), filepath.Join(dir, "registry/services/specs")); err != nil {
		t.Fatal(err)
	}
	r, err := FromDirectory(dir)
	if err != nil {
		t.Fatal(err)
	}
	const want = "specs: error unreadable: a symbolic link where a file is wanted"
	if report := Examine(r, Options{}); !report.Failed(false) || !strings.Contains(findings(report), want) {
		t.Errorf("got\n%s\nwant %s", findings(report), want)
	}
}

func TestADirectoryWithoutARegistryIsRefused(t *testing.T) {
	const rule = " has no directory registry/services: the path of a file below it is its key, as in registry/services/specs/NAME"
	dir := t.TempDir()
	meant := ` (did you mean "` + dir + `"?)`
	write(t, dir, "registry/services/specs/web", `{"port":8000}`)
	write(t, dir, "file", "")
	write(t, dir, "wrong/registry/services", "a file")
	for at, want := range map[string]string{
		"registry":                "directory PATH" + rule + meant, // lower than the top is another key
		"registry/services":       "directory PATH" + rule + meant,
		"registry/services/specs": "directory PATH" + rule + meant,
		"wrong":                   "directory PATH" + rule,
		"nowhere":                 "directory PATH: no such file or directory",
		"file":                    "directory PATH: not a directory",

		"registry/services/specs/web": "directory PATH: not a directory" + meant,
	} {
		path := filepath.Join(dir, at)
		_, err := FromDirectory(path)
		want = strings.Replace(want, "PATH", registry.Quote(path), 1)
		if err == nil || err.Error() != want {
			t.Errorf("%s:\n got %v\nwant %s", at, err, want)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if r, err := FromDirectory(link); err != nil || len(r.Records) != 1 {
		t.Errorf("a link to the directory, given by the user: %+v, %v", r, err)
	}
}
