package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// updateEnv, if it is set, has the test write what the commands print into the document. It is no flag, since the test runs in a process of its own.
const updateEnv = "UPDATE_SESSION"

// Where the session is, and what it is about.
const (
	sessionFile  = "../../docs/control.md"
	sessionBegin = "## A hung backend, in ten commands\n"
	hungEndpoint = "10.1.2.3:8080"
	goodEndpoint = "10.1.2.4:8080"
	stuckClient  = "10.0.0.7"
	otherClient  = "10.0.0.8"
	replaced     = "# the program at " + hungEndpoint + " is replaced"
)

// volatile is what differs from one run to the next, and how it is compared.
var volatile = []struct {
	pattern *regexp.Regexp
	by      string
}{
	{regexp.MustCompile(`\b(?:\d{4}-\d\d-\d\d[T ])?\d\d:\d\d:\d\d\b`), "TIME"}, // with the day where that is another one
	{regexp.MustCompile(`:\d{5}\b`), ":PORT"},
	{regexp.MustCompile(`\b\d+(?:\.\d+)?(?:ms|µs|s)\b`), "DURATION"},
	{regexp.MustCompile(`\d+ new, .* per second`), "RATES per second"},
	{regexp.MustCompile(`etcd@\d+`), "etcd@REVISION"},
	{regexp.MustCompile(` +`), " "},
}

// comparableText leaves out what differs from one run to the next.
func comparableText(text string) string {
	for _, v := range volatile {
		text = v.pattern.ReplaceAllString(text, v.by)
	}
	return strings.TrimSpace(text)
}

// TestAHungBackendIsReplacedInTenCommands: found, its clients listed, drained, waited for, its program replaced, and enabled. docs/control.md has the
// commands, and what they print.
func TestAHungBackendIsReplacedInTenCommands(t *testing.T) {
	if !proxytest.InOwnNetwork(t) { // which has the addresses of the document
		return
	}
	for _, addr := range []string{"10.1.2.3", "10.1.2.4", stuckClient, otherClient} {
		proxytest.MustRun(t, "ip", "addr", "add", addr+"/32", "dev", "lo")
	}
	document, err := os.ReadFile(sessionFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(document), sessionBegin)
	at := strings.Index(rest, "\n    $ ") + 1
	end := strings.Index(rest[at:], "\n\n## ") + at
	if !found || at < 1 || end < at {
		t.Fatalf("%s has no session", sessionFile)
	}
	block := strings.ReplaceAll(rest[at:end], "\n    ", "\n")[len("    "):]

	etcd := etcdtest.StartProcess(t)
	s := &site{etcd: etcd, kv: etcd.Client(t), port: 8000}
	s.put(t, registry.SpecsPrefix+"web", `{"kind":"Service","apiVersion":"v1beta1","id":"web","port":8000}`)
	s.put(t, registry.EndpointsPrefix+"web", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"web","endpoints":[%q,%q]}`, hungEndpoint, goodEndpoint))
	hangs := proxytest.ServeTCP(t, hungEndpoint, func(conn *net.TCPConn) { // it says who it is, and nothing more
		io.WriteString(conn, "old\n")
		proxytest.Hold(conn)
	})
	proxytest.ServeTCP(t, goodEndpoint, greets("good"))
	h := controlled(t, s, "-rr_random_start=false", "-state_dir="+filepath.Dir(takeoverPath(t)))
	for greeted(t, stuckClient, s.port) != "old" { // it stays connected
	}
	h.isLeftWith(1)

	var printed strings.Builder
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	commands := 0
	for line := range strings.Lines(block) {
		line = strings.TrimSuffix(line, "\n")
		if line == replaced {
			hangs.Close()
			proxytest.ServeTCP(t, hungEndpoint, greets("new"))
			fmt.Fprintln(&printed, line)
		}
		command, found := strings.CutPrefix(line, "$ kube-proxy ")
		if !found {
			continue
		}
		commands++
		fmt.Fprintln(&printed, line)
		status, stdout, stderr := h.do(command)
		printed.WriteString(strings.ReplaceAll(stdout+stderr, host, "node1"))
		if status != exitDone {
			fmt.Fprintf(&printed, "exit status %d\n", status)
		}
		if strings.HasPrefix(command, "drain ") {
			for range 6 {
				if by := greeted(t, otherClient, s.port); by != "good" {
					t.Errorf("after %s a new client is greeted by %q", command, by)
				}
			}
			h.isLeftWith(1)
		}
	}
	if commands != 10 {
		t.Errorf("the document has %d commands; want 10", commands)
	}
	by := make(map[string]int)
	for range 6 {
		by[greeted(t, otherClient, s.port)]++
	}
	if by["new"] != 3 || by["good"] != 3 {
		t.Errorf("in the end, clients are greeted by %v; want the half by the new program", by)
	}
	if os.Getenv(updateEnv) != "" {
		text := "    " + strings.ReplaceAll(strings.TrimSuffix(printed.String(), "\n"), "\n", "\n    ")
		text = strings.ReplaceAll(text, "\n    \n", "\n\n")
		if err := os.WriteFile(sessionFile, []byte(before+sessionBegin+rest[:at]+text+rest[end:]), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, got := strings.Split(comparableText(block), "\n"), strings.Split(comparableText(printed.String()), "\n")
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || strings.TrimSpace(want[i]) != strings.TrimSpace(got[i]) {
			t.Fatalf("from line %d on, %s says\n%s\nand the commands print\n%s", i, sessionFile, strings.Join(want[min(i, len(want)):], "\n"), printed.String())
		}
	}
}

// isLeftWith waits until so many clients are connected: the node may notice a moment later that one has left.
func (h hand) isLeftWith(clients int) {
	h.t.Helper()
	proxytest.Eventually(h.t, func() bool { _, out, _ := h.do("sessions -o json"); return strings.Count(out, "\n") == clients }, "%d clients are connected", clients)
}

// greets is an endpoint that says who it is, and then waits for the client to leave.
func greets(name string) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		io.WriteString(conn, name+"\n")
		proxytest.Hold(conn)
	}
}

// greeted returns who greets a new client at an address. One that is greeted by the program that hangs stays until the test ends.
func greeted(t *testing.T, from string, port uint16) string {
	t.Helper()
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
	conn, err := dialer.Dial("tcp", proxytest.On(port).String())
	if err != nil {
		t.Fatal(err)
	}
	by, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if by == "old\n" {
		t.Cleanup(func() { conn.Close() })
	} else {
		conn.Close()
	}
	return strings.TrimSpace(by)
}
