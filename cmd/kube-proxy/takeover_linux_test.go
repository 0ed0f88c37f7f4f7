package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// takeoverPath makes a path for the socket of -takeover.
func takeoverPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "t") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "takeover")
}

// exists reports whether a process waits for a successor, or did.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// A regular is a client that begins a new conversation as soon as one is over, and a page that is asked for again and again.
type regular struct {
	stop chan struct{}
	done sync.WaitGroup

	talks, pages atomic.Int64
	mu           sync.Mutex
	complaints   []string
}

func (r *regular) complain(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.complaints) < 10 {
		r.complaints = append(r.complaints, fmt.Sprintf(format, args...))
	}
}

// attend starts a client of the service, and of a page unless that is empty. The function that it returns ends both, and complains
// if either was ever refused.
func (s *site) attend(t *testing.T, page string) (leave func()) {
	t.Helper()
	r := &regular{stop: make(chan struct{})}
	again := func(each func()) {
		r.done.Go(func() {
			for {
				select {
				case <-r.stop:
					return
				default:
					each()
				}
			}
		})
	}
	again(func() {
		c, err := proxytest.TryTalkTo(t, proxytest.On(s.port))
		if err == nil {
			_, err = c.Say("hello")
			c.Conn.Close()
		}
		if r.talks.Add(1); err != nil {
			r.complain("client %d: %v", r.talks.Load(), err)
		}
	})
	if page != "" {
		client := http.Client{Timeout: programtest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
		again(func() {
			response, err := client.Get(page)
			if r.pages.Add(1); err != nil {
				r.complain("page: %v", err)
				return
			}
			defer response.Body.Close()
			if text, err := io.ReadAll(response.Body); err != nil || response.StatusCode != http.StatusOK {
				r.complain("page: %d %s %v", response.StatusCode, text, err)
			}
		})
	}
	leave = sync.OnceFunc(func() {
		close(r.stop)
		r.done.Wait()
		for _, c := range r.complaints {
			t.Error(c)
		}
		t.Logf("%d clients were answered, and %d pages", r.talks.Load(), r.pages.Load())
	})
	t.Cleanup(leave)
	return leave
}

// counterOf reads a series of /metrics.
func counterOf(t *testing.T, url, series string) float64 {
	t.Helper()
	_, page := see(t, url+"/metrics")
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			value, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("%s is not among\n%s", series, page)
	return 0
}

// TestNobodyNoticesAnUpgrade by SIGUSR2, several in a row: no client is refused, the connections there are go on, counters never go back,
// and the service manager knows who serves.
func TestNobodyNoticesAnUpgrade(t *testing.T) {
	s := newSite(t)
	path, notices := takeoverPath(t), filepath.Join(t.TempDir(), "notify")
	manager, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: notices, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer manager.Close()
	s.env = []string{"NOTIFY_SOCKET=" + notices}
	metrics, url := operatorsURL(t)
	log := filepath.Join(t.TempDir(), "connections")
	p := s.serve(t, "-takeover="+path, "-metrics_bind_address="+metrics, "-connection_log="+log, "-drain_timeout=1h")
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	const series = `kubeproxy_sent_bytes_total{port_name="",protocol="tcp",service="default/chat"}`
	sent := counterOf(t, url, series)
	leave := s.attend(t, url+"/readyz")
	pid := p.Pid()
	hears := func(what string) (line string) {
		t.Helper()
		if err := manager.SetReadDeadline(time.Now().Add(programtest.Patience)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 4096); ; {
			n, err := manager.Read(buf)
			if err != nil {
				t.Fatalf("awaiting %s: %v", what, err)
			}
			if line = string(buf[:n]); strings.HasPrefix(line, what) {
				return line
			}
		}
	}
	hears("READY=1")
	for range 3 {
		if err := syscall.Kill(pid, syscall.SIGUSR2); err != nil {
			t.Fatal(err)
		}
		hears("RELOADING=1\nMONOTONIC_USEC=")
		var next int
		if n, err := fmt.Sscanf(hears("MAINPID="), "MAINPID=%d\nREADY=1", &next); n != 1 || next == pid {
			t.Fatalf("main process %d follows %d: %v", next, pid, err)
		}
		t.Cleanup(func() { _ = syscall.Kill(next, syscall.SIGKILL) }) // or the pipes of the first would stay open
		proxytest.Eventually(t, func() bool { return !serves(pid) }, "process %d ends", pid)
		pid = next
		c.MustSay(t, "are you still there?")
		if now := counterOf(t, url, series); now < sent {
			t.Errorf("%s is %v, and was %v", series, now, sent)
		} else {
			sent = now
		}
	}
	leave()
	c.Conn.Close()
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := p.Exit(t).ExitCode(); code != exitDone { // its pipes are closed with the last process
		t.Errorf("exit status %d of the first process, want %d", code, exitDone)
	}
	if n := strings.Count(p.Stderr.String(), "] took over from process"); n != 3 {
		t.Errorf("the log tells of %d processes that took over, want 3: each writes to the standard error of the first", n)
	}
	if exists(path) {
		t.Errorf("%s is left", path)
	}
}

// serves reports whether a process runs. One that has ended and was not waited for does not.
func serves(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// TestASecondStartTakesOver, as of a container beside the first: with another engine only listeners go over, and connections end in the
// first process.
func TestASecondStartTakesOver(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	first := s.serve(t, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	leave := s.attend(t, "")
	c := s.talk(t)
	second := s.start(t, "-takeover="+path)
	second.Stderr.Wait(t, "listeners, connections and sessions")
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	c.MustSay(t, "and now?")
	third := s.start(t, "-takeover="+path, "-engine=portable")
	third.Stderr.Wait(t, "its listeners; its connections end there")
	c.MustSay(t, "you drain, do you?")
	if serves(third.Pid()) != true || serves(second.Pid()) != true {
		t.Error("both processes should serve")
	}
	c.Conn.Close()
	if code := second.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	leave()
}

// With what the directory holds alone it would close the ports of all services of etcd.
func TestASecondStartWaitsUntilItHasReadEachSource(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, registry.Prefix), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-takeover=" + path, "-registry_dir=" + dir, "-state_dir=" + t.TempDir()}
	first := s.serve(t, args...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	s.etcd.Pause()
	second := s.start(t, args...)
	second.Stderr.Wait(t, "nothing has been read from etcd for 3s: the process that serves goes on until it has been read")
	c.MustSay(t, "and now?")
	s.talk(t).MustSay(t, "is anybody there?")
	s.etcd.Resume()
	second.Stderr.Wait(t, "listeners, connections and sessions")
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	c.MustSay(t, "still?")
}

// What the first process does without, the second need not wait for.
func TestASecondStartDoesNotWaitForWhatTheFirstHasNotRead(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	args := []string{"-takeover=" + path, "-registry_dir=" + filepath.Join(t.TempDir(), "none")}
	first := s.serve(t, args...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	second := s.start(t, args...)
	second.Stderr.Wait(t, "what the other sources hold is served without it")
	second.Stderr.Wait(t, "listeners, connections and sessions")
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

// TestOfTwoSuccessorsAtOnceOneTakesOverFromTheOther: the one that comes second waits its turn.
func TestOfTwoSuccessorsAtOnceOneTakesOverFromTheOther(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	first := s.serve(t, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	leave := s.attend(t, "")
	c := s.talk(t)
	successors := []*programtest.Program{s.start(t, "-takeover="+path), s.start(t, "-takeover="+path)}
	for _, successor := range successors {
		successor.Stderr.Wait(t, "took over from process")
	}
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	proxytest.Eventually(t, func() bool { return serves(successors[0].Pid()) != serves(successors[1].Pid()) }, "one of the two ends")
	c.MustSay(t, "and now?")
	ended := successors[0]
	if serves(ended.Pid()) {
		ended = successors[1]
	}
	if code := ended.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	leave()
}

func TestASuccessorTakesOverDuringTheGrace(t *testing.T) {
	s := newSite(t)
	hears, notices := newSpokesman(t)
	s.env = []string{"NOTIFY_SOCKET=" + notices}
	path := takeoverPath(t)
	first := s.serve(t, "-takeover="+path, "-stop_grace=1h")
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	hears.awaits(t, first.Pid(), 0, "READY=1") // ports open a moment earlier, and a process that is not ready stops without the grace
	leave := s.attend(t, "")
	c := s.talk(t)
	first.Signal(t, syscall.SIGTERM)
	first.Stderr.Wait(t, "(-stop_grace)")
	s.start(t, "-takeover="+path).Stderr.Wait(t, "listeners, connections and sessions")
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	c.MustSay(t, "are you still there?")
	leave()
}

func TestSIGUSR2WithoutASuccessorChangesNothing(t *testing.T) {
	s := newSite(t)
	metrics, url := operatorsURL(t)
	p := s.serve(t, "-metrics_bind_address="+metrics)
	c := s.talk(t)
	p.Signal(t, syscall.SIGUSR2)
	p.Stderr.Wait(t, "no successor is started: -takeover is not given; this process goes on")
	c.MustSay(t, "still there?")
	awaitPage(t, url+"/", 200, "the successor did not take over (it was not started: -takeover is not given)")
}

// A raw is one end of a conversation about a take-over, as bytes: so this test knows the wire by heart, and a release that changes it fails.
type raw struct {
	t     *testing.T
	fd    int
	close func() // may be called again: by then another test may have the number
}

func newRaw(t *testing.T, fd int) raw {
	return raw{t, fd, sync.OnceFunc(func() { unix.Close(fd) })}
}

const hello = "\x01kube-proxy takeover\n\x00\x01"

func dialRaw(t *testing.T, path string) raw {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	r := newRaw(t, fd)
	t.Cleanup(r.close)
	return r
}

func (r raw) send(frame string) {
	r.t.Helper()
	if err := unix.Sendto(r.fd, []byte(frame), unix.MSG_NOSIGNAL, nil); err != nil {
		r.t.Errorf("send %q: %v", frame, err)
	}
}

// receive waits for a frame, and closes what comes with it. The end of file is an empty frame.
func (r raw) receive() string {
	r.t.Helper()
	buf, oob := make([]byte, 1<<17), make([]byte, unix.CmsgSpace(4*253))
	limit := unix.NsecToTimeval(programtest.Patience.Nanoseconds())
	if err := unix.SetsockoptTimeval(r.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
		r.t.Fatal(err)
	}
	for {
		n, oobn, _, _, err := unix.Recvmsg(r.fd, buf, oob, unix.MSG_CMSG_CLOEXEC)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			r.t.Errorf("receive: %v", err)
			return ""
		}
		if messages, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
			for _, m := range messages {
				fds, _ := unix.ParseUnixRights(&m)
				for _, fd := range fds {
					unix.Close(fd)
				}
			}
		}
		return string(buf[:n])
	}
}

// stream receives items up to their end.
func (r raw) stream() {
	r.t.Helper()
	for {
		switch f := r.receive(); {
		case f == "":
			r.t.Error("the stream has no end")
			return
		case f[0] == 6:
			return
		case f[0] != 5:
			r.t.Errorf("frame %q among items", f)
			return
		}
	}
}

// TestASuccessorThatFailsIsNotNoticed: at each step, whatever becomes of it. The first process goes on, says why in one line, and can
// still hand over.
func TestASuccessorThatFailsIsNotNoticed(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	metrics, url := operatorsURL(t)
	p := s.serve(t, "-takeover="+path, "-drain_timeout=1h", "-metrics_bind_address="+metrics)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	leave := s.attend(t, "")
	c := s.talk(t)
	steps := []struct {
		name string
		do   func(raw)
	}{
		{"hello", func(r raw) {
			r.send(hello)
			if f := r.receive(); !strings.HasPrefix(f, "\x02kube-proxy takeover\n\x00\x01") {
				t.Errorf("the answer to hello is %q", f)
			}
		}},
		{"listeners", func(r raw) { r.send("\x04"); r.stream() }},
		{"connections", func(r raw) { r.send("\x07"); r.stream() }},
	}
	lines := 0
	for _, fault := range []struct {
		name string
		do   func(raw)
		line string
	}{
		{"is killed", func(r raw) { r.close() }, "EOF"}, // its end is all that the kernel tells
		{"says nonsense", func(r raw) { r.send("\x63?") }, "got frame 99"},
		{"declines", func(r raw) { r.send("\x03there is no room here") }, "there is no room here"},
	} {
		for n, step := range steps {
			r := dialRaw(t, path)
			for _, step := range steps[:n+1] {
				step.do(r)
			}
			fault.do(r)
			lines++
			proxytest.Eventually(t, func() bool { return strings.Count(p.Stderr.String(), "this process goes on") == lines }, "after %s it %s: one line of the log more", step.name, fault.name)
			if said := p.Stderr.String(); !strings.Contains(said[strings.LastIndex(said, "take-over by"):], fault.line) {
				t.Errorf("after %s it %s: the log does not say %q", step.name, fault.name, fault.line)
			}
			c.MustSay(t, "are you still there?")
		}
	}
	if failed := counterOf(t, url, "kubeproxy_takeovers_failed_total"); failed != float64(lines) {
		t.Errorf("%v take-overs have failed by the metrics; want %d", failed, lines)
	}
	r := dialRaw(t, path)
	for _, step := range steps {
		step.do(r)
	}
	p.Stderr.Wait(t, "the other process does not go on; this process goes on") // it is stuck
	c.MustSay(t, "are you still there?")
	r.close()
	for _, greeting := range []string{"\x01kube-proxy takeover\n\x00\x09", "\x01GET / HTTP/1.1"} {
		r := dialRaw(t, path)
		r.send(greeting)
		if f := r.receive(); !strings.HasPrefix(f, "\x03") {
			t.Errorf("%q is answered by %q", greeting, f)
		}
		r.close()
		lines++
	}
	p.Stderr.Wait(t, "it speaks version 9 of the take-over, and this process version 1")
	lines++ // the stuck one
	if failed := counterOf(t, url, "kubeproxy_takeovers_failed_total"); failed != float64(lines) {
		t.Errorf("%v take-overs have failed by the metrics, with those refused at their greeting; want %d", failed, lines)
	}

	s.start(t, "-takeover="+path).Stderr.Wait(t, "took over from")
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	c.MustSay(t, "are you still there?")
	leave()
}

// TestAnotherUserCannotTakeOver, even where the files would let him. A thread of this test plays him.
func TestAnotherUserCannotTakeOver(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	s := newSite(t)
	path := takeoverPath(t)
	p := s.serve(t, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	if err := errors.Join(os.Chmod(filepath.Dir(path), 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	answer := make(chan string)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			answer <- errno.Error()
			return
		}
		answer <- dialRaw(t, path).receive()
	}()
	if got := <-answer; !strings.HasPrefix(got, "\x03") || !strings.Contains(got, "belongs to user 65534") {
		t.Errorf("it is answered by %q", got)
	}
	p.Stderr.Wait(t, "is not handed anything: it belongs to user 65534")
	s.talk(t)
}

func TestASuccessorWithTooFewDescriptorsDeclines(t *testing.T) {
	s := newSite(t)
	path := takeoverPath(t)
	p := s.serve(t, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	var talks []*proxytest.Talk
	for range 40 {
		talks = append(talks, s.talk(t))
	}
	next := programtest.Run(t, shell("ulimit -n 90 && exec kube-proxy -healthz_bind_address= -metrics_bind_address= -etcd_servers="+s.etcd.URL()+" -bind_address=127.0.0.1 -takeover="+path))
	if code := next.Exit(t).ExitCode(); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	next.Stderr.Wait(t, "and may have 90 (RLIMIT_NOFILE)")
	p.Stderr.Wait(t, "and may have 90 (RLIMIT_NOFILE)")
	for _, c := range talks {
		c.MustSay(t, "are you still there?")
	}
}

// listenRaw plays a predecessor.
func listenRaw(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 8)); err != nil {
		t.Fatal(err)
	}
	return fd
}

func (r raw) accept() raw {
	r.t.Helper()
	fd, _, err := unix.Accept4(r.fd, unix.SOCK_CLOEXEC)
	if err != nil {
		r.t.Fatal(err)
	}
	return newRaw(r.t, fd)
}

func be32(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }

// TestAStrangePredecessorIsNotTakenOverFrom: the program ends with a line that says why, for the process that has the ports goes on. If that one ends
// meanwhile, the program serves.
func TestAStrangePredecessorIsNotTakenOverFrom(t *testing.T) {
	s := newSite(t)
	for _, tt := range []struct {
		name string
		do   func(raw)
		dies bool
		want string
	}{
		{"of another version", func(r raw) { r.send("\x02kube-proxy takeover\n\x00\x07" + be32(1)) }, false, "it speaks version 7"},
		{"that sends what is no record", func(r raw) {
			r.send("\x02kube-proxy takeover\n\x00\x01" + be32(1))
			r.receive()
			r.send("\x05\x00\x01\x00\x00" + be32(3) + "???")
			r.send("\x06" + be32(1) + be32(0) + be32(0))
		}, false, "goes on"},
		{"that dies", func(r raw) { r.send("\x02kube-proxy takeover\n\x00\x01" + be32(1)) }, true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := takeoverPath(t)
			listener := newRaw(t, listenRaw(t, path))
			defer listener.close()
			p := s.start(t, "-takeover="+path)
			r := listener.accept()
			f := r.receive()
			if f != "\x09" {
				t.Errorf("it asks %q first", f)
			}
			for ; f == "\x09" || f == ""; f = r.receive() { // and each second, until it has read etcd: then it may have gone before it is heard
				_ = unix.Sendto(r.fd, []byte("\x0a"), unix.MSG_NOSIGNAL, nil)
				r.close()
				r = listener.accept()
			}
			if f != hello+"\x00\x03" { // and what it can do
				t.Errorf("it says %q", f)
			}
			tt.do(r)
			if tt.dies {
				listener.close()
				r.close()
				s.opens(t)
				s.talk(t).Conn.Close()
				p.Signal(t, syscall.SIGTERM)
				p.Exit(t)
				return
			}
			if code := p.Exit(t).ExitCode(); code != exitFailed {
				t.Errorf("exit status %d, want %d", code, exitFailed)
			}
			r.close()
			p.Stderr.Wait(t, tt.want)
			if n := len(regexp.MustCompile(`(?m)^E.*-takeover: `).FindAllString(p.Stderr.String(), -1)); n != 1 {
				t.Errorf("%d lines of the log say so", n)
			}
		})
	}
}

// shell is a command line. It finds the program by its name.
func shell(line string) *exec.Cmd { return exec.Command("/bin/sh", "-c", line) }
