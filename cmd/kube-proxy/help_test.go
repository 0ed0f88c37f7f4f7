package main

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// help is what "kube-proxy help" prints about words.
func help(t *testing.T, words ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	if status := run(append([]string{"help"}, words...), &stdout, &stderr); status != exitDone || stderr.Len() > 0 {
		t.Fatalf("help %q: exit status %d, and it said %q", words, status, &stderr)
	}
	return stdout.String()
}

// Each flag of each command is in "help all", under a topic, with a sentence of plain English, and in the man page.
func TestEachFlagHasATopicAndAHelpOfPlainEnglish(t *testing.T) {
	all, page := help(t, "all"), help(t, "man")
	m := manual()
	odd := regexp.MustCompile(`(?i)\b(nobody|somebody|whoever|vouch|believe)\b|[^ -~]|\.$`)
	for _, c := range m.Commands {
		c.Flags.VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			if !strings.Contains(all, "\n  -"+f.Name+"\n") && !strings.Contains(all, "\n  -"+f.Name+" ") {
				t.Errorf("%s: -%s has no topic that the manual knows", c.Name, f.Name)
			}
			if !strings.Contains(page, "\n.It Fl "+f.Name) && len(f.Name) > 1 {
				t.Errorf("%s: -%s is not in the man page", c.Name, f.Name)
			}
			text := strings.ReplaceAll(f.Usage, "`", "")
			if words := len(strings.Fields(text)); words < 3 || words > 40 || odd.MatchString(text) {
				t.Errorf("%s: -%s has the help %q; want a plain sentence of 3 to 40 words without a full stop", c.Name, f.Name, text)
			}
		})
	}
	for _, name := range m.Common {
		if m.Commands[0].Flags.Lookup(name) == nil {
			t.Errorf("-%s is no flag", name)
		}
	}
	for _, topic := range m.Topics { // "kube-proxy help WORD" has one meaning
		if m.Commands[0].Flags.Lookup(topic.Name) != nil || slices.Contains(m.Words(), topic.Name) {
			t.Errorf("topic %s has the name of a flag or of a command", topic.Name)
		}
	}
	if last := all[strings.LastIndex(all, "\n\nObsolete: "):]; !strings.Contains(last, "-log_flush_frequency") {
		t.Error("the flags without effect are not at the end")
	}
}

// TestWhatTheManualSaysOfACommandItsOwnHelpSays: each command that a title of "help all" names has each flag below it, with that default.
func TestWhatTheManualSaysOfACommandItsOwnHelpSays(t *testing.T) {
	title := regexp.MustCompile(`(?m)^[A-Z].* \(of kube-proxy (.*)\)$`)
	all := help(t, "all")
	starts := title.FindAllStringSubmatchIndex(all, -1)
	if len(starts) < 5 {
		t.Fatalf("%d titles name commands", len(starts))
	}
	for _, at := range starts {
		below := regexp.MustCompile(`\n\n[A-Z]`).Split(all[at[1]:], 2)[0]
		for _, word := range regexp.MustCompile(`, | and `).Split(all[at[2]:at[3]], -1) {
			own := help(t, word)
			for _, flag := range strings.Split(below, "\n  -")[1:] {
				if !strings.Contains(own, "\n  -"+strings.TrimSpace(flag)+"\n") {
					t.Errorf("help all says of %s what its own help does not:\n  -%s", word, flag)
				}
			}
		}
	}
}

func TestEachCommandIsInTheManual(t *testing.T) {
	named := manual().Words()
	for word := range words {
		if !slices.Contains(named, word) {
			t.Errorf("%s is not in the manual", word)
		}
	}
	for _, word := range named {
		if word != "help" && wordOf(word) == nil {
			t.Errorf("%s is in the manual, and the program does not know it", word)
		}
	}
}

func TestTheManPageHasWhatAnOperatorLooksFor(t *testing.T) {
	page := help(t, "man")
	programtest.CheckManPage(t, page)
	for _, want := range []string{"-etcd_servers=", "-registry_dir=", "kube-proxy check records", "kube-proxy register ", "kube-proxy get ", "kube-proxy rm ",
		".Sh RECORDS\n", ".Sh SERVICE\n", "systemctl reload kube-proxy-classic", "etcdctl put ", ".Sh SIGNALS\n", ".Sh FILES\n", ".Sh EXIT STATUS\n", ".Sh EXAMPLES\n", "SIGUSR2", ".Ss Obsolete"} {
		if !strings.Contains(page, want) {
			t.Errorf("the man page does not have %q", want)
		}
	}
	if page != help(t, "man") || strings.Contains(page, " here)") {
		t.Error("the man page depends on this machine")
	}
}

// An operator copies the records of the man page.
func TestTheRecordsOfTheManPageAreGood(t *testing.T) {
	page := strings.ReplaceAll(help(t, "man"), `\(dq`, `"`)
	puts := regexp.MustCompile(`(?:etcdctl put (\S+)|echo) '([^']+)'(?: > (\S+))?`).FindAllStringSubmatch(page, -1)
	records := 0
	for _, m := range puts {
		key := m[1]
		if key == "" {
			key = registry.Prefix + m[3]
		}
		if !strings.HasPrefix(m[2], "{") {
			continue // flags
		}
		records++
		if _, warnings, err := decode.Decode(key, []byte(m[2])); err != nil || len(warnings) > 0 {
			t.Errorf("%s %s: %v, %v", key, m[2], warnings, err)
		}
	}
	if records != 4 {
		t.Errorf("the page has %d records; want 4: %q", records, puts)
	}
}
