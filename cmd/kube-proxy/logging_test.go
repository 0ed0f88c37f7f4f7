//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
)

// A quietProgram is the program with a standard error that the test chooses.
type quietProgram struct {
	cmd     *exec.Cmd
	ended   chan error
	healthz string
	metrics string
}

// startWith runs the program at a site with this standard error, and answers operators.
func (s *site) startWith(t *testing.T, stderr *os.File, env []string, args ...string) *quietProgram {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	healthz, healthzURL := operatorsURL(t)
	metrics, metricsURL := operatorsURL(t)
	p := &quietProgram{ended: make(chan error, 1), healthz: healthzURL, metrics: metricsURL}
	p.cmd = &exec.Cmd{Path: path, Stderr: stderr, Env: append(append(os.Environ(), "GORACE=atexit_sleep_ms=0"), env...),
		Args: append([]string{"kube-proxy", "-etcd_servers", s.etcd.URL(), "-bind_address=127.0.0.1", "-dial_timeout=15s", "-dial_total_timeout=15s",
			"-drain_timeout=0", "-healthz_bind_address=" + healthz, "-metrics_bind_address=" + metrics}, args...)}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.cmd.Wait() }()
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// serves checks that clients and operators are answered, and that SIGTERM ends the program with status 0.
func (p *quietProgram) serves(t *testing.T, s *site) {
	t.Helper()
	s.opens(t)
	for range 50 {
		s.talk(t).Conn.Close()
	}
	awaitPage(t, p.healthz+"/livez", 200, "ok")
	awaitPage(t, p.healthz+"/readyz", 200, "ok")
}

func (p *quietProgram) stops(t *testing.T) {
	t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-p.ended:
		if err != nil {
			t.Errorf("it ended with %v; want exit status 0", err)
		}
	case <-time.After(programtest.Patience):
		t.Fatal("SIGTERM did not end it")
	}
}

func (p *quietProgram) lostLines(t *testing.T) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		_, body := see(t, p.metrics+"/metrics")
		return strings.Contains(body, "\nkubeproxy_log_dropped_lines_total ") && !strings.Contains(body, "\nkubeproxy_log_dropped_lines_total 0\n")
	}, "lost lines are counted")
}

// narrowPipe has room for a page of log lines.
func narrowPipe(t *testing.T) (reader, writer *os.File) {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close(); writer.Close() })
	if _, err := unix.FcntlInt(writer.Fd(), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	return reader, writer
}

// Standard error is a pipe that is not read. Clients and operators are served all the same, and SIGTERM ends the program.
func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	s := newSite(t)
	_, writer := narrowPipe(t)
	p := s.startWith(t, writer, nil, "-v=4")
	p.serves(t, s)
	p.stops(t)
}

// The disk of the log is full. That costs lines, which are counted, and nothing else.
func TestALogOnAFullDiskEndsNothing(t *testing.T) {
	t.Run("standard error", func(t *testing.T) {
		s := newSite(t)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer full.Close()
		p := s.startWith(t, full, nil, "-connection_log=/dev/full")
		p.serves(t, s)
		p.lostLines(t)
		p.stops(t)
	})
	t.Run("files", func(t *testing.T) {
		dir := t.TempDir()
		if err := unix.Mount("none", dir, "tmpfs", 0, "size=64k"); err != nil {
			t.Skipf("cannot make a small disk: %v", err)
		}
		defer unix.Unmount(dir, unix.MNT_DETACH)
		s := newSite(t)
		p := s.startWith(t, nil, nil, "-logtostderr=false", "-log_dir="+dir, "-v=4", "-connection_log="+filepath.Join(dir, "connections.log"))
		s.opens(t)
		ballast := filepath.Join(dir, "ballast")
		if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); err == nil {
			t.Fatal("the disk is not full")
		}
		p.serves(t, s)
		p.lostLines(t)
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		proxytest.Eventually(t, func() bool {
			s.talk(t).Conn.Close()
			text, err := os.ReadFile(filepath.Join(dir, "kube-proxy.WARNING"))
			return err == nil && strings.Contains(string(text), "log lines to ") && strings.Contains(string(text), "were lost: ")
		}, "the log says how many lines were lost")
		p.stops(t)
	})
}

// The reader of standard error leaves, with a connection log and without.
func TestAReaderOfTheLogWhoLeavesEndsNothing(t *testing.T) {
	for _, args := range [][]string{{}, {"-connection_log=-"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			s := newSite(t)
			reader, writer := narrowPipe(t)
			p := s.startWith(t, writer, nil, append(args, "-v=4")...)
			reader.Close()
			p.serves(t, s)
			p.lostLines(t)
			p.stops(t)
		})
	}
}

// A reader who comes back reads how many lines it has missed.
func TestTheLogSaysHowManyLinesWereLost(t *testing.T) {
	s := newSite(t)
	reader, writer := narrowPipe(t)
	p := s.startWith(t, writer, nil, "-v=4")
	s.opens(t)
	for lost := false; !lost; {
		for range 100 {
			s.talk(t).Conn.Close()
		}
		_, body := see(t, p.metrics+"/metrics")
		lost = !strings.Contains(body, "\nkubeproxy_log_dropped_lines_total 0\n")
	}
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "W") && strings.Contains(lines.Text(), "log lines to standard error were lost: they came faster than they could be written") {
			break
		}
	}
	go io.Copy(io.Discard, reader)
	p.stops(t)
}

// When standard error is the journal's stream, lines bear the journal's priorities.
func TestLinesForTheJournalHavePriorities(t *testing.T) {
	for _, listens := range []bool{true, false} {
		t.Run(fmt.Sprint(listens), func(t *testing.T) {
			s := newSite(t)
			reader, writer, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer reader.Close()
			var stat unix.Stat_t
			if err := unix.Fstat(int(writer.Fd()), &stat); err != nil {
				t.Fatal(err)
			}
			journal, prefix := fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino), map[byte]string{'I': "<6>", 'W': "<4>"}
			if !listens {
				journal, prefix = fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino+1), nil
			}
			p := s.startWith(t, writer, []string{journal}, "-client_key=x") // which is worth a warning
			s.opens(t)
			p.stops(t)
			writer.Close()
			text, err := io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			seen := make(map[byte]bool)
			for _, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
				words, _ := strings.CutPrefix(line, "<6>")
				words, _ = strings.CutPrefix(words, "<4>")
				seen[words[0]] = true
				if line != prefix[words[0]]+words {
					t.Errorf("line %q; want it to begin with %q", line, prefix[words[0]])
				}
			}
			if !seen['I'] || !seen['W'] {
				t.Errorf("there is not a line of each severity:\n%s", text)
			}
		})
	}
}

// A directory that cannot have log files is an error at the start, which names the flag and the directory.
func TestALogDirectoryThatIsMissingEndsTheStart(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	p := start(t, nil, "-logtostderr=false", "-log_dir="+missing, "-etcd_servers=http://127.0.0.1:1")
	if code := p.Exit(t).ExitCode(); code != exitFailed || !strings.HasPrefix(p.Stderr.String(), "-log_dir=\""+missing+"\": ") {
		t.Errorf("exit status %d, and it said %q; want %d, and the flag with the directory", code, p.Stderr, exitFailed)
	}
}

// SIGHUP has the log files reopened. It never ends the program, whatever logs there are.
func TestSIGHUPReopensLogsAndEndsNothing(t *testing.T) {
	s := newSite(t)
	for _, sig := range []syscall.Signal{syscall.SIGHUP, syscall.SIGUSR1} {
		p := s.serve(t)
		p.Signal(t, sig)
		p.Stderr.Wait(t, "reopening logs")
		s.talk(t).Conn.Close()
		p.Signal(t, syscall.SIGTERM)
		if code := p.Exit(t).ExitCode(); code != exitDone {
			t.Errorf("exit status %d after %v; want %d", code, sig, exitDone)
		}
	}
	dir := t.TempDir()
	connections := filepath.Join(dir, "connections.log")
	p := s.serve(t, "-logtostderr=false", "-log_dir="+dir, "-connection_log="+connections)
	if err := os.Rename(connections, connections+".1"); err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, func() bool {
		p.Signal(t, syscall.SIGHUP)
		files, _ := filepath.Glob(filepath.Join(dir, "kube-proxy.*.INFO.*"))
		_, err := os.Stat(connections)
		return len(files) > 1 && err == nil // files made within one second would have the same name
	}, "another log file and another connection log")
}
