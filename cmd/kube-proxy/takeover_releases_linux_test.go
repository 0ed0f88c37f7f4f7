package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
)

// wirePaths are where the frames and records of a take-over are defined.
var wirePaths = []string{"internal/takeover", "proxy/handover", ":(exclude)*_test.go"}

// earlierRelease builds kube-proxy as it was before the last change to the frames or records of a take-over. The build has no race
// detector, so most of it comes from the build cache.
func earlierRelease(t *testing.T) (program string) {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	git := func(args ...string) ([]byte, error) {
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...)
		return cmd.Output()
	}
	log, err := git(append([]string{"log", "-1", "--format=%P", "HEAD", "--"}, wirePaths...)...)
	parent, _, _ := strings.Cut(strings.TrimSpace(string(log)), " ")
	if err != nil || parent == "" {
		t.Skipf("this tree has no git history that reaches an earlier release: %q, %v", log, err)
	}
	archive, err := git("archive", parent)
	if err != nil {
		t.Skipf("git history ends before %s, which is in no shallow clone: %v", parent, err)
	}
	dir := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-x", "-C", dir)
	unpack.Stdin = bytes.NewReader(archive)
	if text, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("unpack %s: %v\n%s", parent, err, text)
	}
	program = filepath.Join(dir, "kube-proxy.earlier")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", program, "./cmd/kube-proxy")
	build.Dir, build.Env = dir, append(os.Environ(), "GOFLAGS=", "CGO_ENABLED=0")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", parent, err, text)
	}
	t.Logf("the earlier release is %s", parent)
	return program
}

// An earlier release hands over to this one, and back. A connection goes on through all of it, and no new client is refused.
func TestReleasesTakeOverFromEachOther(t *testing.T) {
	t.Parallel()
	program := earlierRelease(t)
	s := newSite(t)
	path := takeoverPath(t)
	args := []string{"-v=1", "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=", "-drain_timeout=1h", "-takeover=" + path, "-etcd_servers=" + s.etcd.URL()}
	earlier := func() *programtest.Program { return programtest.Run(t, exec.Command(program, args...)) }
	first := earlier()
	s.opens(t)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	leave := s.attend(t, "")
	c := s.talk(t)
	running := first
	for n, next := range []func() *programtest.Program{
		func() *programtest.Program { return s.start(t, "-takeover="+path, "-drain_timeout=1h") },
		earlier,
		func() *programtest.Program { return s.start(t, "-takeover="+path, "-drain_timeout=1h") },
	} {
		successor := next()
		successor.Stderr.Wait(t, "listeners, connections and sessions")
		if code := running.Exit(t).ExitCode(); code != exitDone {
			t.Errorf("exit status %d after take-over %d, want %d", code, n+1, exitDone)
		}
		c.MustSay(t, fmt.Sprintf("are you still there after %d?", n+1))
		running = successor
	}
	leave()
}
