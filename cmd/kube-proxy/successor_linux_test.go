package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// waits has a site whose services are those of etcd and of an empty directory: what a successor cannot read of etcd, its log says.
func (s *site) waits(t *testing.T, path string) (args []string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, registry.Prefix), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"-takeover=" + path, "-registry_dir=" + dir}
}

// successors are the processes that p has started so far.
func successors(t *testing.T, p *programtest.Program) (pids []int) {
	t.Helper()
	for _, found := range regexp.MustCompile(`SIGUSR2: started \S+ as process (\d+), to take over`).FindAllStringSubmatch(p.Stderr.String(), -1) {
		pid, err := strconv.Atoi(found[1])
		if err != nil {
			t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	return pids
}

// reload has p start its nth successor, and waits until n of them have waited for etcd.
func reload(t *testing.T, p *programtest.Program, n int) (pid int) {
	t.Helper()
	p.Signal(t, syscall.SIGUSR2)
	proxytest.Eventually(t, func() bool { return len(successors(t, p)) == n }, "successor %d is started", n)
	pid = successors(t, p)[n-1]
	t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) }) // or the pipes of the first would stay open
	proxytest.Eventually(t, func() bool {
		return strings.Count(p.Stderr.String(), "the process that serves goes on until it has been read") == n
	}, "successor %d waits", n)
	return pid
}

// TestALaterReloadTakesThePlaceOfASuccessorThatWaits: else flags that were corrected meanwhile, or a program that was rolled back, would not count,
// and the first successor would take over whenever it can read its source.
func TestALaterReloadTakesThePlaceOfASuccessorThatWaits(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	p := s.serve(t, s.waits(t, path)...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	s.etcd.Pause()
	first := reload(t, p, 1)
	second := reload(t, p, 2)
	if serves(first) {
		t.Errorf("process %d still waits beside process %d", first, second)
	}
	c.MustSay(t, "are you still there?")
	s.etcd.Resume()
	proxytest.Eventually(t, func() bool { return !serves(p.Pid()) }, "the first process ends")
	c.MustSay(t, "and now?")
	if !serves(second) {
		t.Errorf("process %d does not serve", second)
	}
	if err := syscall.Kill(second, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	if n := strings.Count(p.Stderr.String(), "] took over from process"); n != 1 {
		t.Errorf("%d processes took over; want 1", n)
	}
}

// TestAReloadDoesNotEndASuccessorThatIsTakingOver: what it has been given would end with it.
func TestAReloadDoesNotEndASuccessorThatIsTakingOver(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	p := s.serve(t, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	b := &between{back: path + "-first", at: step{"opened", 7, 1}}
	if err := errors.Join(os.Rename(path, b.back), os.Rename(b.stand(t), path)); err != nil { // a successor has the arguments of the first process
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGUSR2)
	b.await()
	p.Signal(t, syscall.SIGUSR2)
	p.Stderr.Wait(t, "is taking over already")
	b.release()
	proxytest.Eventually(t, func() bool { return !serves(p.Pid()) }, "the first process ends")
	c.MustSay(t, "are you still there?")
	pids := successors(t, p)
	if len(pids) != 1 || !serves(pids[0]) {
		t.Errorf("of the successors %v the first alone should run", pids)
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// A spokesman hears what each process tells the service manager.
type spokesman struct {
	mu   sync.Mutex // guards the field below
	said map[int][]string
}

func newSpokesman(t *testing.T) (s *spokesman, path string) {
	t.Helper()
	s, path = &spokesman{said: make(map[int][]string)}, filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	done.Go(func() {
		for buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(unix.SizeofUcred)); ; {
			n, oobn, _, _, err := socket.ReadMsgUnix(buf, oob)
			if err != nil {
				return // closed at the end of the test
			}
			parts, err := unix.ParseSocketControlMessage(oob[:oobn])
			if err != nil || len(parts) != 1 {
				t.Errorf("%q came with %v, %v", buf[:n], parts, err)
				return
			}
			from, err := unix.ParseUnixCredentials(&parts[0])
			if err != nil {
				t.Error(err)
				return
			}
			s.mu.Lock()
			s.said[int(from.Pid)] = append(s.said[int(from.Pid)], string(buf[:n]))
			s.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		socket.Close()
		done.Wait()
	})
	return s, path
}

// of returns what a process has said so far.
func (s *spokesman) of(pid int) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.said[pid])
}

// awaits waits until a process says it, after its first since messages.
func (s *spokesman) awaits(t *testing.T, pid, since int, want string) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		return slices.ContainsFunc(s.of(pid)[since:], func(said string) bool { return strings.HasPrefix(said, want) })
	}, "process %d says %q", pid, want)
}

// TestAPredecessorThatDrainsDoesNotSayThatItGoesOn, whatever becomes of its successor: the service manager would show the status of a process
// that accepts no new clients. Nor does it say that it is alive, or that it stops: that would hide a successor that hangs, or end one that serves.
func TestAPredecessorThatDrainsDoesNotSayThatItGoesOn(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	hears, notices := newSpokesman(t)
	path := takeoverPath(t)
	p := start(t, []string{"NOTIFY_SOCKET=" + notices, "WATCHDOG_USEC=100000"}, "-etcd_servers", s.etcd.URL(), "-bind_address=127.0.0.1",
		"-takeover="+path, "-engine=portable", "-drain_timeout=1m", "-stop_grace=1h")
	s.opens(t)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	p.Signal(t, syscall.SIGUSR2)
	p.Stderr.Wait(t, "its listeners; its connections end there")
	p.Stderr.Wait(t, "has taken over")
	pids := successors(t, p)
	if len(pids) != 1 {
		t.Fatalf("the successors are %v", pids)
	}
	t.Cleanup(func() { _ = syscall.Kill(pids[0], syscall.SIGKILL) }) // or the pipes of the first would stay open
	hears.awaits(t, pids[0], 0, fmt.Sprintf("MAINPID=%d\nREADY=1", pids[0]))
	since := len(hears.of(p.Pid()))
	p.Signal(t, syscall.SIGTERM)
	time.Sleep(300 * time.Millisecond) // six times as long as between two WATCHDOG=1
	if err := syscall.Kill(pids[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, func() bool { return !exists(fmt.Sprintf("/proc/%d", pids[0])) }, "the first process notices the end of its successor")
	c.MustSay(t, "you drain, do you?")
	c.Conn.Close()
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	for _, line := range []string{"has not taken over", "the successor has ended"} {
		if strings.Contains(p.Stderr.String(), line) {
			t.Errorf("its log says %q", line)
		}
	}
	said := hears.of(p.Pid())
	if len(said) > since {
		t.Errorf("while it drains it tells the service manager %q; want nothing", said[since:])
	}
	reloading := slices.IndexFunc(said, func(s string) bool { return strings.HasPrefix(s, "RELOADING=1") })
	if reloading < 0 || slices.ContainsFunc(said[reloading:], func(s string) bool { return strings.HasPrefix(s, "READY=1") || strings.HasSuffix(s, ": 0 ports open") }) {
		t.Errorf("it tells the service manager %q; want nothing of what it does once it has handed over", said)
	}
}

// TestASuccessorThatWaitsTellsTheServiceManagerNothing: systemd takes each message for one of the service. It would not restart a process that hangs,
// show a status that is not that of the process that serves, and end the service because its successor was told to stop.
func TestASuccessorThatWaitsTellsTheServiceManagerNothing(t *testing.T) {
	s := newSite(t)
	hears, notices := newSpokesman(t)
	s.env = []string{"NOTIFY_SOCKET=" + notices, "WATCHDOG_USEC=200000"}
	path := takeoverPath(t)
	p := s.serve(t, s.waits(t, path)...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	hears.awaits(t, p.Pid(), 0, "STATUS=serving: 1 ports open")
	s.etcd.Pause()
	first := reload(t, p, 1)
	before := len(hears.of(p.Pid()))
	proxytest.Eventually(t, func() bool { return len(hears.of(p.Pid())) > before+5 }, "the process that serves is alive")
	hears.awaits(t, p.Pid(), 0, "READY=1\nSTATUS=serving: 1 ports open") // a later reload need not wait until the successor has taken over
	before = len(hears.of(p.Pid()))
	if err := syscall.Kill(first, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	hears.awaits(t, p.Pid(), before, "READY=1\nSTATUS=serving: 1 ports open")
	if said := hears.of(first); len(said) > 0 {
		t.Errorf("the successor that waited said %q", said)
	}
	second := reload(t, p, 2)
	if said := hears.of(second); len(said) > 0 {
		t.Errorf("the successor that waits says %q", said)
	}
	s.etcd.Resume()
	hears.awaits(t, second, 0, fmt.Sprintf("MAINPID=%d\nREADY=1", second))
	hears.awaits(t, second, 0, "STATUS=serving: 1 ports open")
	hears.awaits(t, second, 0, "WATCHDOG=1")
}

// TestAReloadBeforeTheFirstStateStartsTheProgramAnew, by the service manager: a successor would find nobody to take over from, and serve beside this
// process.
func TestAReloadBeforeTheFirstStateStartsTheProgramAnew(t *testing.T) {
	s, m := newSite(t), newManager(t)
	path := takeoverPath(t)
	killed := m.start(t, s, "-takeover="+path)
	m.awaits(t, s.keptName())
	kill(t, killed)
	c := proxytest.TalkTo(t, proxytest.On(s.port)) // in the queue of the socket that the manager keeps
	metrics, url := operatorsURL(t)
	s.etcd.Pause()
	p := m.start(t, s, "-takeover="+path, "-metrics_bind_address="+metrics)
	awaitPage(t, url+"/readyz", 503, "not yet: nothing has been read from etcd")
	p.Signal(t, syscall.SIGUSR2)
	if code := p.Exit(t).ExitCode(); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	p.Stderr.Wait(t, "SIGUSR2: nothing is served yet: this process ends, for the service manager to start the program anew")
	if n := len(successors(t, p)); n > 0 {
		t.Errorf("%d successors were started", n)
	}
	m.awaits(t, s.keptName())
	s.etcd.Resume()
	m.start(t, s, "-takeover="+path, "-metrics_bind_address="+metrics)
	c.MustSay(t, "hello")
	awaitPage(t, url+"/readyz", 200, "ok")
}

// TestAReloadBeforeTheFirstStateIsRefusedWhereNobodyWouldStartTheProgramAnew, and the page says what to do.
func TestAReloadBeforeTheFirstStateIsRefusedWhereNobodyWouldStartTheProgramAnew(t *testing.T) {
	s := newSite(t)
	metrics, url := operatorsURL(t)
	s.etcd.Pause()
	p := s.start(t, "-takeover="+takeoverPath(t), "-metrics_bind_address="+metrics)
	awaitPage(t, url+"/readyz", 503, "not yet: nothing has been read from etcd")
	p.Signal(t, syscall.SIGUSR2)
	p.Stderr.Wait(t, "no successor is started: nothing is served yet: restart this process")
	awaitPage(t, url+"/", 200, "nothing is served yet: restart this process")
	s.etcd.Resume()
	s.opens(t)
	s.talk(t).Conn.Close()
	if n := len(successors(t, p)); n > 0 {
		t.Errorf("%d successors were started", n)
	}
}
