package docs

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/config/apisource"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdv2source"
	"kubeproxy/config/filesource"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

var update = flag.Bool("update", false, "write the tables of flags.md anew")

// manualPages are the operators' manual: one page for each kind of question.
var manualPages = []string{"operating.md", "flags.md", "sources.md", "traffic.md", "kernel.md", "metrics.md", "troubleshooting.md", "how-do-i.md"}

// TestTheOperatorsManualIsComplete: the pages of the manual name every flag, signal, exit status, page, metric,
// field of the connection log, log level and reason that there is, and no metric that there is not.
func TestTheOperatorsManualIsComplete(t *testing.T) {
	var text strings.Builder
	for _, page := range manualPages {
		text.WriteString(read(t, page))
	}
	manual := make(map[string]bool) // whatever is quoted
	for _, m := range code.FindAllStringSubmatch(text.String(), -1) {
		manual[m[1]] = true
	}
	want := func(kind string, words ...string) {
		t.Helper()
		if len(words) < 2 {
			t.Errorf("found only %q of %s", words, kind)
		}
		for _, word := range words {
			if !manual[word] {
				t.Errorf("the manual does not tell of %s %s", kind, word)
			}
		}
	}
	for flag := range flagNames(t, "check") {
		want("flag", "-"+flag, "-"+flag)
	}
	metrics := found(t, "../cmd/internal/metrics/testdata/metrics.golden", `(?m)^(\w+) `)
	want("metric", metrics...)
	want("label", found(t, "../cmd/internal/metrics/collector.go", `(?m)^\s*\w+ += (?:gauge|counter)\(.*", "(\w+)"\)$`)...)
	want("page", found(t, "../cmd/internal/operators/pages.go", `p\["(/[^"]+)"\]`)...)
	want("field", found(t, "../cmd/internal/connlog/line.go", `"(\w+)":`)...)
	for _, r := range traffic.Reasons() {
		want("reason", r.String(), r.String())
	}
	for _, r := range traffic.DropReasons() {
		want("reason", r.Code(), r.Code())
	}
	for cause := range etcdsource.NumCauses {
		want("reason", cause.String(), cause.String())
	}
	want("reason", filesource.Causes()...)
	for cause := range apisource.NumCauses {
		want("reason", cause.String(), cause.String())
	}
	want("reason", etcdv2source.Causes()...)
	for _, row := range []string{"| SIGTERM, SIGINT |", "| SIGHUP |", "| SIGUSR1 |", "\n| command | 0 | 1 | 2 | 3 |", "\n| 1 | listeners", "\n| 4 | what was"} {
		if !strings.Contains(text.String(), row) {
			t.Errorf("the manual has no row %q", row)
		}
	}

	exists := strings.Join(metrics, " ")
	for word := range manual {
		name, _, _ := strings.Cut(word, "{")
		if strings.HasPrefix(name, "kubeproxy_") && !strings.Contains(" "+exists+" ", " "+name+" ") {
			t.Errorf("the manual tells of %s, which does not exist", name)
		}
	}
}

// TestTheTableOfFlagsIsTheProgramsHelp: the tables of flags.md are made from what the program says of itself; -update writes them anew.
func TestTheTableOfFlagsIsTheProgramsHelp(t *testing.T) {
	const begin, end = "<!-- begin: go test ./docs -run TableOfFlags -update -->\n", "<!-- end -->\n"
	text, err := os.ReadFile("flags.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, began := strings.Cut(string(text), begin)
	_, after, ended := strings.Cut(rest, end)
	if !began || !ended {
		t.Fatalf("flags.md has no place for the tables: want the lines %q and %q", begin, end)
	}
	want := before + begin + tablesOfFlags(help(t, "all")) + end + after
	if *update {
		err = os.WriteFile("flags.md", []byte(want), 0o644)
	}
	if err != nil {
		t.Error(err)
	} else if diff := cmp.Diff(want, string(text)); diff != "" && !*update {
		t.Errorf("flags.md is not what the program says; go test ./docs -run TableOfFlags -update writes it anew (-want +got):\n%s", diff)
	}
}

var (
	aTopic   = regexp.MustCompile(`^([A-Z][a-z]+): (.*)$`)
	aFlagOf  = regexp.MustCompile(`^  (-\w+)(?: (.*))?$`)
	aDefault = regexp.MustCompile(`^(.*) \(default ([^;)]*?)(?:: \S+ here)?(?:;[^)]*)?\)$`)
	inProse  = regexp.MustCompile(`(^|[ (])(-[a-z_]+(?:=[a-z]+)?)`)
)

// tablesOfFlags makes a table for each topic of what help prints. Flags of kube-proxy register have a page of their own.
func tablesOfFlags(help string) string {
	var b strings.Builder
	var name, value string
	var meaning []string
	row := func() {
		if name == "" {
			return
		}
		words, by := strings.Join(meaning, " "), ""
		if m := aDefault.FindStringSubmatch(words); m != nil {
			words, by = m[1], m[2]
		}
		words, by = inProse.ReplaceAllString(words, "$1`$2`"), inProse.ReplaceAllString(by, "$1`$2`")
		fmt.Fprintf(&b, "| %s | %s | %s |\n", strings.TrimSpace("`"+name+"` "+value), by, words)
		name, meaning = "", nil
	}
	skip := false
	for line := range strings.Lines(help) {
		line = strings.TrimSuffix(line, "\n")
		switch topic, f := aTopic.FindStringSubmatch(line), aFlagOf.FindStringSubmatch(line); {
		case topic != nil:
			row()
			title, about := topic[1], topic[2]
			about, of, ok := strings.Cut(about, " (of ")
			if ok {
				title += ", of " + strings.TrimSuffix(of, ")")
			}
			if skip = strings.Contains(title, "register"); !skip {
				fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n| flag | default | meaning |\n|---|---|---|\n", title, strings.ToUpper(about[:1])+about[1:])
			}
		case skip:
		case f != nil:
			row()
			name, value = f[1], f[2]
		case strings.HasPrefix(line, "      "):
			meaning = append(meaning, strings.TrimSpace(line))
		}
	}
	row()
	return b.String() + "\n"
}

// TestTheDefaultsOfRegisterAreTheProgramsOwn compares the table of flags in register.md with what the program says of itself.
func TestTheDefaultsOfRegisterAreTheProgramsOwn(t *testing.T) {
	defaults := make(map[string]string)
	lines := strings.ReplaceAll(help(t, "register"), "\n      ", " ") // one for each flag
	for _, m := range regexp.MustCompile(`(?m)^  -(\w+) .*\(default ([^;)]+)`).FindAllStringSubmatch(lines, -1) {
		defaults[m[1]] = m[2]
	}
	compared := 0
	for _, m := range regexp.MustCompile("(?m)^\\| `-([a-z_]+)` \\| ([^|]*) \\| ").FindAllStringSubmatch(read(t, "register.md"), -1) {
		want, ok := defaults[m[1]]
		if _, err := time.ParseDuration(want); !ok || err != nil && want != "1" {
			continue // the table may say in words what follows
		}
		compared++
		if !sameValue(m[2], want) {
			t.Errorf("the default of -%s is %s; the table says %q", m[1], want, m[2])
		}
	}
	if compared < 4 {
		t.Errorf("register.md: found only %d defaults", compared)
	}
}

// sameValue reports whether a cell of a table is a value of a flag: 60s is 1m0s.
func sameValue(cell, value string) bool {
	cell = strings.Trim(cell, "`")
	a, errA := time.ParseDuration(cell)
	b, errB := time.ParseDuration(value)
	return cell == value || errA == nil && errB == nil && a == b
}

// read returns the text of a file.
func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// found gives what a pattern matches in a file.
func found(t *testing.T, file, pattern string) []string {
	t.Helper()
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1) {
		all = append(all, m[1])
	}
	return all
}

// TestTheSystemdUnitIsSound has systemd read it, where there is one: it understands every line, and finds
// little that the service could do besides its work.
func TestTheSystemdUnitIsSound(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Log("no systemd on this machine: the unit was not read")
		return
	}
	text, err := os.ReadFile("kube-proxy-classic.service")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "kube-proxy-classic")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "kube-proxy-classic.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/kube-proxy-classic", program)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify"}, {"security", "--offline=true", "--threshold=20"}} {
		if out, err := exec.Command(analyze, append(args, unit)...).CombinedOutput(); err != nil || args[0] == "verify" && len(out) > 0 {
			t.Errorf("systemd-analyze %v: %v\n%s", args, err, out)
		}
	}
}

// The unit and the logrotate file name the same log, the same unit and the same signal.
func TestTheLogrotateFileFitsTheUnit(t *testing.T) {
	one := func(file, pattern string) string {
		t.Helper()
		all := found(t, file, pattern)
		if len(all) != 1 {
			t.Fatalf("%s has %q for %s; want one", file, all, pattern)
		}
		return all[0]
	}
	const unit, rotation = "kube-proxy-classic.service", "kube-proxy-classic.logrotate"
	log := one(unit, `-connection_log=(\S+)`)
	if rotated := one(rotation, `(?m)^(/\S+) \{$`); rotated != log {
		t.Errorf("the unit writes %s, and %s is rotated", log, rotated)
	}
	if dir := one(unit, `(?m)^LogsDirectory=(.+)$`); filepath.Dir(log) != "/var/log/"+dir {
		t.Errorf("the unit may write to /var/log/%s; its log is %s", dir, log)
	}
	if dir, state := one(unit, `(?m)^StateDirectory=(.+)$`), one(unit, `-state_dir=(\S+)`); state != "/var/lib/"+dir {
		t.Errorf("the unit may write to /var/lib/%s; its state is in %s", dir, state)
	}
	if name := one(rotation, `systemctl kill -s HUP (\S+)`); name != unit {
		t.Errorf("SIGHUP is sent to %s; want %s", name, unit)
	}
	if dir, path := one(unit, `(?m)^RuntimeDirectory=(.+)$`), one(unit, `-takeover=(\S+)`); filepath.Dir(path) != "/run/"+dir {
		t.Errorf("the unit may write to /run/%s; a successor asks at %s", dir, path)
	}
	one(unit, `(?m)^ExecReload=/bin/sh -c 'kill -(USR2) \$MAINPID'$`) // starts a successor, which
	one(unit, `(?m)^NotifyAccess=(all)$`)                             // says that it is the main process now
	kept := one(unit, `(?m)^FileDescriptorStoreMax=([1-9]\d*)$`)      // for a crash
	if said := one(unit, `(?m)^Environment=FDSTORE=(\d+)$`); said != kept {
		t.Errorf("systemd keeps %s descriptors, and the process reads %s", kept, said)
	}
	one(rotation, `(?m)^ +(nocreate)$`) // else the file would not belong to the unit's user
}

// TestTheUnitsFlagsExist.
func TestTheUnitsFlagsExist(t *testing.T) {
	flags := flagNames(t, "check")
	for _, flag := range found(t, "kube-proxy-classic.service", ` -([a-z_]+)[=.]`) {
		if !flags[flag] {
			t.Errorf("kube-proxy-classic.service uses -%s, which is no flag", flag)
		}
	}
}

// TestThePagesOfAnOperatorNameTheImageAndThePortsOfAPackage, which are not those of the bare program.
func TestThePagesOfAnOperatorNameTheImageAndThePortsOfAPackage(t *testing.T) {
	settings := read(t, "../scripts/dist/package/config.yaml")
	recipes := read(t, "how-do-i.md")
	for _, flag := range []string{"metrics_bind_address", "healthz_bind_address"} {
		port := regexp.MustCompile(`(?m)^` + flag + `: .*:(\d+)$`).FindStringSubmatch(settings)
		if port == nil || !strings.Contains(recipes, "("+port[1]+" by a package), `-"+flag+"`") {
			t.Errorf("how-do-i.md does not name the port of -%s that packages have: %q", flag, port)
		}
	}
	for _, page := range []string{"operating.md", "troubleshooting.md", "control.md"} {
		for program, packaged := range map[string]string{"10249": "10449", "10256": "10456"} {
			if text := read(t, page); strings.Contains(text, program) && !strings.Contains(text, packaged) {
				t.Errorf("%s names the port %s, and not %s, which packages have", page, program, packaged)
			}
		}
	}
	image := regexp.MustCompile(`[a-z-]*kube-proxy[a-z-]*:(VERSION|\d)`)
	for _, page := range append(manualPages, "security.md") {
		for _, name := range image.FindAllString(read(t, page), -1) {
			if !strings.HasPrefix(name, "kube-proxy-classic:") {
				t.Errorf("%s: an image %s is not built", page, name)
			}
		}
	}
}

// TestEachListOfAlgorithmsIsWhole: a new one has to be told of wherever its siblings are.
func TestEachListOfAlgorithmsIsWhole(t *testing.T) {
	for _, page := range []string{"records.md", "flags.md", "book/02-who-is-next.md"} {
		for _, balance := range registry.Balances() {
			if balance != registry.RoundRobin && !strings.Contains(read(t, page), balance.String()) {
				t.Errorf("%s does not tell of %s", page, balance)
			}
		}
	}
}
