package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// firstPredecessor is the commit that stands for the last release while no commit before this one has the tag of one.
const firstPredecessor = "f258558bd8c87b1c77d6525f3ae0bfd47b691d06" // of 2026-11-27

// An earlier is a release as its commit builds it.
type earlier struct {
	commit, tree, program string
}

// lastRelease builds the kube-proxy of the last release before this commit. The build has no race detector, so most of it comes from the build cache.
// Without the history of the repository the test fails: it would promise what nobody has seen.
func lastRelease(t *testing.T) earlier {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).Output()
	}
	e := earlier{commit: firstPredecessor, tree: t.TempDir()}
	if tag, err := git("describe", "--tags", "--abbrev=0", "--match=v[0-9]*", "HEAD~1"); err == nil {
		e.commit = strings.TrimSpace(string(tag))
	}
	archive, err := git("archive", e.commit)
	if err != nil {
		t.Fatalf("the last release, %s, is not in this clone, which has to have its history and its tags: git fetch --unshallow --tags (%v)", e.commit, err)
	}
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", e.tree)
	unpack.Stdin = bytes.NewReader(archive)
	if text, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", e.commit, err, text)
	}
	e.program = filepath.Join(e.tree, "kube-proxy.earlier")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", e.program, "./cmd/kube-proxy")
	build.Dir, build.Env = e.tree, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", e.commit, err, text)
	}
	t.Logf("the last release is %s", e.commit)
	return e
}

// TestTheLastReleaseAndThisOneUnderstandEachOther: what docs/releases.md promises between neighbours, in both directions.
func TestTheLastReleaseAndThisOneUnderstandEachOther(t *testing.T) {
	t.Parallel()
	e := lastRelease(t)
	t.Run("take-over", e.takesOverAndIsTakenOver)
	t.Run("state", e.readsTheStateAndIsRead)
	t.Run("control", e.asksAndIsAsked)
	t.Run("flags", e.hasNoFlagThatIsGone)
	t.Run("metrics", e.hasNoMetricThatIsGone)
}

// run starts the last release at a site, as [site.start] starts this one.
func (e earlier) run(t *testing.T, s *site, args ...string) *programtest.Program {
	t.Helper()
	return programtest.Run(t, exec.Command(e.program, append([]string{"-etcd_servers=" + s.etcd.URL(), "-v=1", "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=",
		"-dial_timeout=15s", "-dial_total_timeout=15s"}, args...)...))
}

// Three take-overs in a row: from the last release to this one, back, and again. A connection and a UDP session go on through all of it, and no new
// client is refused.
func (e earlier) takesOverAndIsTakenOver(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	endpoint, port := proxytest.ServeUDP(t, "127.0.0.1:0", proxytest.IdentifyUDP("u")), proxytest.FreePort(t)
	s.put(t, registry.EndpointsPrefix+"dns", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"dns","endpoints":[%q]}`, endpoint.Addr))
	s.put(t, registry.SpecsPrefix+"dns", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"dns","port":%d,"protocol":"UDP"}`, port))
	args := []string{"-takeover=" + path, "-drain_timeout=1h", "-udp_timeout=1h"}
	last := func() *programtest.Program { return e.run(t, s, args...) }
	this := func() *programtest.Program { return s.start(t, args...) }
	running := last()
	s.opens(t)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	leave := s.attend(t, "")
	c, u := s.talk(t), proxytest.DialUDP(t, proxytest.On(port))
	session := u.AskOften(t).Session
	for n, next := range []func() *programtest.Program{this, last, this} {
		successor := next()
		successor.Stderr.Wait(t, "listeners, connections and sessions")
		if code := running.Exit(t).ExitCode(); code != exitDone {
			t.Errorf("exit status %d after take-over %d, want %d", code, n+1, exitDone)
		}
		c.MustSay(t, fmt.Sprintf("are you still there after %d?", n+1))
		if now := u.Ask(t).Session; now != session {
			t.Errorf("after take-over %d the UDP session is %v, and was %v", n+1, now, session)
		}
		running = successor
	}
	leave()
}

// Each release is killed while etcd is away, and the other one starts with what it has saved: the service, and what an operator has decided.
func (e earlier) readsTheStateAndIsRead(t *testing.T) {
	s := newSite(t)
	a, b := s.twoEndpoints(t)
	s.put(t, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"chat","port":%d,"annotations":{"kube-proxy/max-connections":"1000","haproxy.org/load-balance":"leastconn"}}`, s.port))
	h, state := aHand(t), filepath.Join(t.TempDir(), "state")
	args := []string{"-state_dir=" + state, "-control=" + h.path, "-drain_timeout=0", "-config_sync_period=1s"}
	last := func() *programtest.Program { return e.run(t, s, args...) }
	this := func() *programtest.Program { return s.start(t, args...) }
	file := filepath.Join(state, "kube-proxy.state")
	for _, pair := range []struct {
		name    string
		one, up func() *programtest.Program
	}{{"this release after the last one", last, this}, {"the last release after this one", this, last}} {
		if err := os.RemoveAll(state); err != nil {
			t.Fatal(err)
		}
		p := pair.one()
		s.opens(t)
		h.isThere()
		h.want("disable chat "+a.Addr.String(), exitDone, "no client until ")
		proxytest.Eventually(t, func() bool { text, _ := os.ReadFile(file); return bytes.Contains(text, []byte(b.Addr.String())) }, "the state is saved")
		p.Signal(t, syscall.SIGTERM)
		p.Exit(t)
		s.etcd.Kill()
		p = pair.up()
		s.opens(t)
		if by := s.answers(t, 6); by["b"] != 6 {
			t.Errorf("%s: of 6 clients, %v are answered; want all by b, since a is disabled", pair.name, by)
		}
		if exists(file + ".bad") {
			t.Errorf("%s: the state is set aside\n%s", pair.name, p.Stderr)
		}
		p.Signal(t, syscall.SIGTERM)
		p.Exit(t)
		s.etcd.Start(t)
	}
}

// The commands of each release ask a node of the other.
func (e earlier) asksAndIsAsked(t *testing.T) {
	s := newSite(t)
	a, _ := s.twoEndpoints(t)
	h := aHand(t)
	for _, c := range []struct {
		name string
		node func() *programtest.Program
		ask  func(command string) (status int, text string)
	}{
		{"this release asks the last one", func() *programtest.Program { return e.run(t, s, "-control="+h.path, "-drain_timeout=0") }, func(command string) (int, string) {
			status, stdout, stderr := h.do(command)
			return status, stdout + stderr
		}},
		{"the last release asks this one", func() *programtest.Program { return s.start(t, "-control="+h.path, "-drain_timeout=0") }, func(command string) (int, string) {
			words := strings.Fields(command)
			cmd := exec.CommandContext(t.Context(), e.program, append([]string{words[0], "-control=" + h.path}, words[1:]...)...)
			text, _ := cmd.CombinedOutput() // its exit status says the same
			return cmd.ProcessState.ExitCode(), string(text)
		}},
	} {
		p := c.node()
		s.opens(t)
		h.isThere()
		client := s.talk(t)
		for _, step := range [][2]string{
			{"status chat -o json", `"default/chat"`},
			{"sessions -o json", client.Conn.LocalAddr().String()},
			{"drain chat " + a.Addr.String(), "no new client until "},
			{"status chat", "by an operator"},
			{"enable chat " + a.Addr.String(), "the record counts again"},
			{"log chat", "default/chat"},
			{"kill -client=" + client.Conn.LocalAddr().String() + " -o json", `"ended": 1`},
		} {
			if status, text := c.ask(step[0]); status != exitDone || !strings.Contains(strings.ReplaceAll(text, `"ended":1`, `"ended": 1`), step[1]) {
				t.Errorf("%s, %s: exit status %d, and\n%s; want %q", c.name, step[0], status, text, step[1])
			}
		}
		p.Signal(t, syscall.SIGTERM)
		p.Exit(t)
	}
}

// wantAll fails the test for each line of a file of the last release, as far as a pattern keeps it, that the file of this one does not have.
func (e earlier) wantAll(t *testing.T, file string, pattern *regexp.Regexp) {
	t.Helper()
	lines := func(root string) map[string]bool {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(file)))
		if err != nil {
			t.Fatal(err)
		}
		all := make(map[string]bool)
		for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
			all[m[1]] = true
		}
		return all
	}
	before, now := lines(e.tree), lines(filepath.Join("..", ".."))
	if len(before) < 50 {
		t.Fatalf("%s of %s has only %d lines like %v", file, e.commit, len(before), pattern)
	}
	for line := range before {
		if !now[line] {
			t.Errorf("%s has %s no longer", file, line)
		}
	}
}

// docs/flags.md is made from the flags themselves, which a test compares.
func (e earlier) hasNoFlagThatIsGone(t *testing.T) {
	e.wantAll(t, "docs/flags.md", regexp.MustCompile("(?m)^\\| `(-\\w+)`"))
}

// The list of metrics, with type and labels, is made from /metrics, which a test compares.
func (e earlier) hasNoMetricThatIsGone(t *testing.T) {
	e.wantAll(t, "cmd/internal/metrics/testdata/metrics.golden", regexp.MustCompile(`(?m)^(\w+ \w+ \{.*\})$`))
}
