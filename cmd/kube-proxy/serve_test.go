package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A site is an etcd and a service in it that chats.
type site struct {
	etcd *etcdtest.Process
	kv   *clientv3.Client
	port uint16
	env  []string // of each program that is started there, besides the test's own
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{etcd: etcdtest.StartProcess(t), port: proxytest.FreePort(t)}
	s.kv = s.etcd.Client(t)
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	s.put(t, registry.EndpointsPrefix+"chat", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[%q]}`, endpoint.Addr))
	s.offer(t)
	return s
}

// offer writes the service's spec, and withdraw deletes it.
func (s *site) offer(t *testing.T) {
	t.Helper()
	s.put(t, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"chat","port":%d}`, s.port))
}

func (s *site) withdraw(t *testing.T) {
	t.Helper()
	if _, err := s.kv.Delete(t.Context(), registry.SpecsPrefix+"chat"); err != nil {
		t.Fatal(err)
	}
}

func (s *site) put(t *testing.T, key, value string) {
	t.Helper()
	if _, err := s.kv.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

// start starts kube-proxy there. It is patient with endpoints: a busy loopback loses packets, and a
// lost SYN takes a second.
func (s *site) start(t *testing.T, args ...string) *programtest.Program {
	t.Helper()
	return start(t, s.env, append([]string{"-etcd_servers", s.etcd.URL(), "-bind_address=127.0.0.1", "-v=1",
		"-dial_timeout=15s", "-dial_total_timeout=15s"}, args...)...)
}

// serve starts kube-proxy there, and waits until the service is open.
func (s *site) serve(t *testing.T, args ...string) *programtest.Program {
	t.Helper()
	p := s.start(t, args...)
	s.opens(t)
	return p
}

func (s *site) opens(t *testing.T) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(s.port)) }, "port %d opens", s.port)
}

func (s *site) closes(t *testing.T) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return !proxytest.Listens(proxytest.On(s.port)) }, "port %d closes", s.port)
}

// talk is a client that has been answered once, so that its connection is relayed.
func (s *site) talk(t *testing.T) *proxytest.Talk {
	t.Helper()
	c := proxytest.TalkTo(t, proxytest.On(s.port))
	c.MustSay(t, "hello")
	return c
}

// TestFromARecordToAByte is the whole of the program: a service is written, reached, deleted, and
// written again, and who was being served when it was deleted goes on being served.
func TestFromARecordToAByte(t *testing.T) {
	s := newSite(t)
	p := s.serve(t)
	c := s.talk(t)
	s.withdraw(t)
	s.closes(t)
	c.MustSay(t, "are you still there?")
	s.offer(t)
	s.opens(t)
	s.talk(t).Conn.Close()
	c.MustSay(t, "and now?")
	c.Conn.Close()
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

// TestFirstSignalDrains: it stops accepting, goes on relaying, and ends well with the last relay.
func TestFirstSignalDrains(t *testing.T) {
	s := newSite(t)
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		p := s.serve(t, "-drain_timeout=1h")
		c := s.talk(t)
		p.Signal(t, sig)
		s.closes(t)
		c.MustSay(t, "I am not done yet")
		c.Conn.Close()
		if code := p.Exit(t).ExitCode(); code != exitDone {
			t.Errorf("%v: exit status %d, want %d", sig, code, exitDone)
		}
	}
}

// TestANodeThatWasToldToStopIsNotReadyAndServesForTheGrace: balancers that check it learn that it leaves while it still serves who they send. It
// follows its source meanwhile.
func TestANodeThatWasToldToStopIsNotReadyAndServesForTheGrace(t *testing.T) {
	s := newSite(t)
	metrics, at := operatorsURL(t)
	p := s.serve(t, "-stop_grace=1h", "-drain_timeout=1h", "-metrics_bind_address="+metrics)
	awaitPage(t, at+"/readyz", 200, "ok")
	p.Signal(t, syscall.SIGTERM)
	for _, page := range []string{"/readyz", "/healthz"} {
		awaitPage(t, at+page, 503, "leaving: told to stop; new clients are accepted until the end of -stop_grace")
	}
	p.Stderr.Wait(t, "not ready, and accepting clients for 1h0m0s more (-stop_grace)")
	awaitPage(t, at+"/livez", 200, "ok")
	awaitPage(t, at+"/metrics", 200, "\nkubeproxy_ready 0\n")
	awaitPage(t, at+"/", 200, "it is not ready, and accepts new clients")
	s.talk(t)
	s.withdraw(t)
	s.closes(t)
	s.offer(t)
	s.opens(t)
	s.talk(t)
	p.Signal(t, syscall.SIGTERM)
	if how := p.Exit(t).Sys().(syscall.WaitStatus); !how.Signaled() || how.Signal() != syscall.SIGTERM {
		t.Errorf("after a second signal ended by %v, want SIGTERM", how)
	}
}

func TestTheGraceEndsWithTheDrain(t *testing.T) {
	s := newSite(t)
	p := s.serve(t, "-stop_grace=200ms", "-drain_timeout=1h")
	c := s.talk(t)
	p.Signal(t, syscall.SIGTERM)
	s.closes(t)
	p.Stderr.Wait(t, "draining for at most 1h0m0s")
	c.MustSay(t, "I am not done yet")
	c.Conn.Close()
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

func TestANodeThatServesNobodyHasNoGrace(t *testing.T) {
	p := start(t, nil, "-etcd_servers=http://127.0.0.1:1", "-bind_address=127.0.0.1", "-stop_grace=1h")
	p.Stderr.Wait(t, "etcd")
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

func TestDrainTimeoutCutsWhoTakesTooLong(t *testing.T) {
	s := newSite(t)
	for _, timeout := range []string{"100ms", "0"} {
		p := s.serve(t, "-drain_timeout="+timeout)
		c := s.talk(t)
		p.Signal(t, syscall.SIGTERM)
		if code := p.Exit(t).ExitCode(); code != exitDone {
			t.Errorf("after %s: exit status %d, want %d", timeout, code, exitDone)
		}
		if name, err := c.Say("hello?"); err == nil {
			t.Errorf("after %s: %s still answers", timeout, name)
		}
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	s := newSite(t)
	p := s.serve(t, "-drain_timeout=1h")
	s.talk(t)
	p.Signal(t, syscall.SIGTERM)
	p.Stderr.Wait(t, "draining for at most 1h0m0s")
	p.Signal(t, syscall.SIGTERM)
	how := p.Exit(t).Sys().(syscall.WaitStatus)
	if !how.Signaled() || how.Signal() != syscall.SIGTERM {
		t.Errorf("ended by %v, want SIGTERM", how)
	}
}

// TestTheLogOfAStopIsInOrder: what stops it comes before what came of that.
func TestTheLogOfAStopIsInOrder(t *testing.T) {
	p := newSite(t).serve(t)
	p.Signal(t, syscall.SIGTERM)
	p.Exit(t)
	log := p.Stderr.String()
	told, ended := strings.Index(log, "draining for at most"), strings.Index(log, "all connections have finished")
	if told < 0 || ended < told {
		t.Errorf("the log is\n%s", log)
	}
}

// TestRotationBeginsWithTheFirst endpoint, when -rr_random_start=false wants it. There are so many
// endpoints that it would hardly be by chance.
func TestRotationBeginsWithTheFirst(t *testing.T) {
	s := newSite(t)
	var addrs []string
	for i := range 32 {
		addrs = append(addrs, strconv.Quote(proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat(strconv.Itoa(i))).Addr.String()))
	}
	s.put(t, registry.EndpointsPrefix+"chat", `{"kind":"Endpoints","apiVersion":"v1beta1","id":"chat","endpoints":[`+strings.Join(addrs, ",")+`]}`)
	p := s.start(t, "-rr_random_start=false")
	p.Stderr.Wait(t, "listening for chat") // to try the port would be to take a turn
	if first := proxytest.TalkTo(t, proxytest.On(s.port)).MustSay(t, "hello"); first != "0" {
		t.Errorf("the first client was given endpoint %s, want 0", first)
	}
}

// TestServiceManagerIsTold: READY=1 comes with the first state in force, and not before; STATUS= says what the
// program is doing, or what it waits for.
func TestServiceManagerIsTold(t *testing.T) {
	manager := func() (env []string, socket *net.UnixConn) {
		path := filepath.Join(t.TempDir(), "notify")
		socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { socket.Close() })
		return []string{"NOTIFY_SOCKET=" + path}, socket
	}
	env, socket := manager()
	// hears reads what is said up to a line that begins so, and returns that line and those before it.
	hears := func(begin string) (line string, before []string) {
		t.Helper()
		if err := socket.SetReadDeadline(time.Now().Add(programtest.Patience)); err != nil {
			t.Fatal(err)
		}
		for buf := make([]byte, 4096); ; {
			n, err := socket.Read(buf)
			if err != nil {
				t.Fatalf("awaiting %q after %q: %v", begin, before, err)
			}
			if line = string(buf[:n]); strings.HasPrefix(line, begin) {
				return line, before
			}
			before = append(before, line)
		}
	}
	s := newSite(t)
	p := start(t, env, "-etcd_servers="+s.etcd.URL(), "-bind_address=127.0.0.1")
	_, before := hears("READY=1")
	if n := len(before); n == 0 || !strings.HasPrefix(before[n-1], "STATUS=serving: 1 ports open") {
		t.Errorf("before it is ready it says %q; want that it serves", before)
	}
	if !proxytest.Listens(proxytest.On(s.port)) {
		t.Error("said that it is ready, and the port is not open")
	}
	p.Signal(t, syscall.SIGTERM)
	if got, _ := hears("STOPPING=1"); got != "STOPPING=1\nSTATUS=draining" {
		t.Errorf("heard %q", got)
	}
	p.Exit(t)

	env, socket = manager() // nothing that the first one said is in it
	p = start(t, env, "-etcd_servers=http://127.0.0.1:1")
	if got, before := hears("STATUS=waiting for etcd: open a watch: "); !strings.Contains(got, "refused") || slices.Contains(before, "READY=1") {
		t.Errorf("without etcd: heard %q, then %q", before, got)
	}
	p.Signal(t, syscall.SIGTERM)
	hears("STOPPING=1")
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("without etcd: exit status %d, want %d", code, exitDone)
	}
}

// TestTheServiceManagersWatchdogIsServed from the start, and for as long as the program is alive.
func TestTheServiceManagersWatchdogIsServed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	start(t, []string{"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=20000"}, "-etcd_servers=http://127.0.0.1:1")
	if err := socket.SetReadDeadline(time.Now().Add(programtest.Patience)); err != nil {
		t.Fatal(err)
	}
	for heard := 0; heard < 3; {
		buf := make([]byte, 1024)
		n, err := socket.Read(buf)
		got := string(buf[:n])
		switch {
		case got == "WATCHDOG=1":
			heard++
		case err != nil, !strings.HasPrefix(got, "STATUS="):
			t.Fatalf("heard %q (%v), want WATCHDOG=1", got, err)
		}
	}
}

// TestLogFilesAreWrittenAtOnce: -logtostderr=false logs to files.
func TestLogFilesAreWrittenAtOnce(t *testing.T) {
	dir := t.TempDir()
	start(t, nil, "-logtostderr=false", "-log_dir="+dir, "-log_flush_frequency=1h", "-etcd_servers=http://127.0.0.1:1")
	proxytest.Eventually(t, func() bool {
		text, err := os.ReadFile(filepath.Join(dir, "kube-proxy.INFO"))
		return err == nil && strings.Contains(string(text), "watching etcd at [http://127.0.0.1:1]")
	}, "the log file says what is watched")
}

// TestPasswordLogsIn has an etcd that lets no user in without a password.
func TestPasswordLogsIn(t *testing.T) {
	s := newSite(t)
	etcdtest.EnableAuth(t, s.kv, "root", "kube-proxy", "se cret", registry.Prefix)
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("se cret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	p := s.serve(t, "-etcd_username=kube-proxy", "-etcd_password_file="+file, "-v=4")
	s.talk(t)
	said := p.Stderr.String()
	for _, warning := range []string{"can be read by every user", "in the clear"} {
		if !strings.Contains(said, warning) {
			t.Errorf("no warning with %q", warning)
		}
	}
	if strings.Contains(said, "se cret") {
		t.Error("the password is in the log")
	}
}
