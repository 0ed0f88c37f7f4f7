package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
)

// exitCases are a command line for each exit status that the manual names. NODE stands for the flag of a node, ETCD for that of its etcd, CHAT for an
// endpoint of its service chat.
var exitCases = map[string][]string{ // by command
	"kube-proxy": {"0 -version", "1 -etcd_config=/nonexistent", "2 -bogus"},
	"help":       {"0 help", "2 help nonsense"},
	"check":      {"0 check ETCD", "1 check /nonexistent", "2 check -bogus"},
	"register":   {"0 register -version", "1 register -etcd_config=/nonexistent -service=web -port=80 -check=none", "2 register -bogus"},
	"get":        {"0 get ETCD chat", "1 get ETCD nobody", "2 get"},
	"put":        {"0 put ETCD other -port=9", "1 put ETCD other", "2 put"},
	"rm":         {"0 rm ETCD other", "1 rm ETCD other", "2 rm"},
	"status":     {"0 status NODE chat", "1 status NODE nobody", "2 status NODE a b", "3 status NODE dumb"},
	"log":        {"0 log NODE", "1 log -control=/nonexistent", "2 log a b"},
	"sessions":   {"0 sessions NODE", "1 sessions -control=/nonexistent", "2 sessions a"},
	"kill":       {"0 kill NODE -service=nobody", "1 kill -control=/nonexistent -service=chat", "2 kill"},
	"wait":       {"0 wait NODE -endpoint=10.9.9.9", "1 wait -control=/nonexistent -endpoint=10.9.9.9", "2 wait", "3 wait NODE -endpoint=CHAT -timeout=1ms"},
	"drain":      {"0 drain NODE chat CHAT -force", "1 drain NODE chat 10.9.9.9", "2 drain"},
	"weight":     {"0 weight NODE chat CHAT 5", "1 weight NODE chat 10.9.9.9 5", "2 weight a b c"},
	"enable":     {"0 enable NODE chat CHAT", "1 enable NODE chat 10.9.9.9", "2 enable"},
	"disable":    {"0 disable NODE chat CHAT -force", "1 disable NODE chat 10.9.9.9", "2 disable"},
	"names":      {"0 names NODE", "1 names -control=/nonexistent", "2 names a b"},
	"drain-node": {"0 drain-node NODE", "1 drain-node -control=/nonexistent", "2 drain-node a"},
	"cleanup":    {"0 cleanup -version", "2 cleanup a"}, // TestCleanupSaysWhatItDeletedAndWhatItLeft has the other
}

// inOrder are the commands, such that each finds what it needs.
var inOrder = strings.Fields("kube-proxy help check register get put rm status log names sessions wait kill drain weight enable disable drain-node cleanup")

// TestExitStatusesAreThoseOfTheManual: each command line of a cell of the table ends so, and no other status is named, there or in the man page. An
// error is one line on standard error, and nothing is on standard output; check has a report.
func TestExitStatusesAreThoseOfTheManual(t *testing.T) {
	said := exitTable(t)
	s := newSite(t)
	h := controlled(t, s)
	s.put(t, "/registry/services/specs/dumb", fmt.Sprintf(`{"id":"dumb","port":%d}`, proxytest.FreePort(t)))
	proxytest.Eventually(t, func() bool { status, _, _ := h.do("status dumb"); return status == 3 }, "a service without endpoints")
	s.talk(t) // and stays
	_, chat, _ := h.do("sessions -o json")
	endpoint := regexp.MustCompile(`"endpoint":"([^"]+)"`).FindStringSubmatch(chat)
	if endpoint == nil {
		t.Fatalf("no session: %s", chat)
	}
	fill := strings.NewReplacer("NODE", "-control="+h.path, "ETCD", "-etcd_servers="+s.etcd.URL(), "CHAT", endpoint[1])
	for _, command := range inOrder {
		var got []string
		for _, line := range exitCases[command] {
			want, args, _ := strings.Cut(line, " ")
			got = append(got, want)
			var stdout, stderr bytes.Buffer
			if command == "kube-proxy" || command == "register" { // their log is the whole process's
				p := programtest.Start(t, nil, "kube-proxy", strings.Fields(args)...)
				if code := p.Exit(t).ExitCode(); fmt.Sprint(code) != want {
					t.Errorf("%s: exit status %d, want %s", args, code, want)
				}
				continue
			}
			if status := run(strings.Fields(fill.Replace(args)), &stdout, &stderr); fmt.Sprint(status) != want {
				t.Errorf("%s: exit status %d, want %s: %s%s", args, status, want, &stdout, &stderr)
			}
			if lines := strings.Count(stderr.String(), "\n"); want == "1" && command != "check" && (lines != 1 || stdout.Len() > 0) || want == "2" && lines != 2 {
				t.Errorf("%s: standard error has %d lines: %s", args, lines, &stderr)
			}
		}
		if command == "cleanup" {
			got = append(got, "1")
			slices.Sort(got)
		}
		if !slices.Equal(got, said[command]) {
			t.Errorf("%s ends with %q, and the manual says %q", command, got, said[command])
		}
	}
	for _, word := range append(manual().Words(), "kube-proxy") {
		if !slices.Contains(inOrder, word) || said[word] == nil {
			t.Errorf("%s is not in the table of exit statuses, or not in this test", word)
		}
	}
	_, section, _ := strings.Cut(help(t, "man"), ".Sh EXIT STATUS\n")
	section, _, _ = strings.Cut(section, ".Sh ")
	if items := regexp.MustCompile(`(?m)^\.It (\d+)$`).FindAllString(section, -1); !slices.Equal(items, []string{".It 0", ".It 1", ".It 2", ".It 3"}) {
		t.Errorf("the man page has %q", items)
	}
}

// exitTable reads the table of docs/operating.md: the statuses of each command that have words.
func exitTable(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rows, _ := strings.Cut(string(text), "| command | 0 | 1 | 2 | 3 |\n|---|---|---|---|---|\n")
	rows, _, _ = strings.Cut(rows, "\n\n")
	table := make(map[string][]string)
	for row := range strings.Lines(rows) {
		cells := strings.Split(strings.TrimSpace(row), " |")
		var statuses []string
		for status, cell := range cells[1:5] {
			if strings.TrimSpace(cell) != "" {
				statuses = append(statuses, fmt.Sprint(status))
			}
		}
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[0], -1) {
			table[m[1]] = statuses
		}
	}
	return table
}
