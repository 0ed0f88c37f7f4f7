package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/apisource"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdv2source"
	"kubeproxy/config/filesource"
	"kubeproxy/proxy/traffic"
)

// TestTheOperatorsManualIsComplete: docs/operating.md names every flag, signal, exit status, page, metric,
// field of the connection log, log level and reason that there is, and no metric that there is not.
func TestTheOperatorsManualIsComplete(t *testing.T) {
	text, err := os.ReadFile("operating.md")
	if err != nil {
		t.Fatal(err)
	}
	manual := make(map[string]bool) // whatever is quoted
	for _, m := range code.FindAllStringSubmatch(string(text), -1) {
		manual[m[1]] = true
	}
	want := func(kind string, words ...string) {
		t.Helper()
		if len(words) < 2 {
			t.Errorf("found only %q of %s", words, kind)
		}
		for _, word := range words {
			if !manual[word] {
				t.Errorf("operating.md does not tell of %s %s", kind, word)
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
	for _, row := range []string{"| SIGTERM, SIGINT |", "| SIGHUP |", "| SIGUSR1 |", "\n| 0 | a clean", "\n| 1 | it could", "\n| 2 | the command", "\n| 1 | listeners", "\n| 4 | what was"} {
		if !strings.Contains(string(text), row) {
			t.Errorf("operating.md has no row %q", row)
		}
	}

	exists := strings.Join(metrics, " ")
	for word := range manual {
		name, _, _ := strings.Cut(word, "{")
		if strings.HasPrefix(name, "kubeproxy_") && !strings.Contains(" "+exists+" ", " "+name+" ") {
			t.Errorf("operating.md tells of %s, which does not exist", name)
		}
	}
}

// TestTheDefaultsInTheDocsAreTheProgramsOwn compares the tables of flags with what the program says of itself. Where it has no value by
// default, a table may say in words what follows.
func TestTheDefaultsInTheDocsAreTheProgramsOwn(t *testing.T) {
	defaults := make(map[string]string)
	lines := strings.ReplaceAll(help(t, "all"), "\n      ", " ") // one for each flag
	for _, m := range regexp.MustCompile(`(?m)^  -(\w+) .*\(default ([^;)]+)`).FindAllStringSubmatch(lines, -1) {
		if derived := strings.HasSuffix(m[2], " here"); !derived && !slices.Contains([]string{"0", "0s"}, m[2]) {
			defaults[m[1]] = m[2]
		}
	}
	row := regexp.MustCompile("(?m)^\\| (`-[a-z][^|]*) \\| ([^|]*) \\| ")
	for _, document := range []string{"operating.md", "../README.md"} {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		compared := 0
		for _, m := range row.FindAllStringSubmatch(string(text), -1) {
			flags, cells := strings.Split(m[1], ", "), strings.Split(m[2], ", ")
			for i, flag := range flags {
				want, ok := defaults[strings.Trim(flag, "`-")]
				if !ok {
					continue
				}
				compared++
				if got := cells[min(i, len(cells)-1)]; !sameValue(got, want) {
					t.Errorf("%s: the default of %s is %s; the table says %q", document, flag, want, got)
				}
			}
		}
		if compared < 10 {
			t.Errorf("%s: found only %d defaults", document, compared)
		}
	}
}

// sameValue reports whether a cell of a table is a value of a flag: 60s is 1m0s.
func sameValue(cell, value string) bool {
	cell = strings.Trim(cell, "`")
	a, errA := time.ParseDuration(cell)
	b, errB := time.ParseDuration(value)
	return cell == value || errA == nil && errB == nil && a == b
}

// found gives what a pattern matches in a file.
func found(t *testing.T, file, pattern string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
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
	text, err := os.ReadFile("kube-proxy.service")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	unit := filepath.Join(t.TempDir(), "kube-proxy.service")
	if err := os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/kube-proxy", program)), 0o644); err != nil {
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
	const unit, rotation = "kube-proxy.service", "kube-proxy.logrotate"
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
	for _, flag := range found(t, "kube-proxy.service", ` -([a-z_]+)[=.]`) {
		if !flags[flag] {
			t.Errorf("kube-proxy.service uses -%s, which is no flag", flag)
		}
	}
}
