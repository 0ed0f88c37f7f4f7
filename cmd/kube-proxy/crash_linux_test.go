package main

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
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

// A manager plays systemd: it keeps the descriptors that a service sends, by name, and passes them to the next process that it starts.
type manager struct {
	path string
	done sync.WaitGroup

	mu   sync.Mutex // guards the field below
	kept map[string]keptSocket
}

type keptSocket struct {
	fd     int
	cookie uint64 // of the socket: the same for all descriptors of it
}

func newManager(t *testing.T) *manager {
	t.Helper()
	m := &manager{path: filepath.Join(t.TempDir(), "notify"), kept: make(map[string]keptSocket)}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	m.done.Go(func() {
		buf, oob := make([]byte, 4096), make([]byte, unix.CmsgSpace(4*253))
		for {
			n, oobn, _, _, err := conn.ReadMsgUnix(buf, oob)
			if err != nil {
				return
			}
			m.hear(t, string(buf[:n]), oob[:oobn])
		}
	})
	t.Cleanup(func() {
		conn.Close()
		m.done.Wait()
		for _, s := range m.kept {
			unix.Close(s.fd)
		}
	})
	return m
}

// hear is told by a service.
func (m *manager) hear(t *testing.T, message string, oob []byte) {
	var descriptors []int
	if parts, err := unix.ParseSocketControlMessage(oob); err == nil {
		for _, part := range parts {
			fds, _ := unix.ParseUnixRights(&part)
			descriptors = append(descriptors, fds...)
		}
	}
	fields := make(map[string]string)
	for line := range strings.Lines(message) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		fields[key] = value
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	name := fields["FDNAME"]
	if fields["FDSTOREREMOVE"] == "1" {
		if s, ok := m.kept[name]; ok {
			unix.Close(s.fd)
			delete(m.kept, name)
		}
	}
	if fields["FDSTORE"] != "1" {
		if len(descriptors) > 0 {
			t.Errorf("%q came with descriptors", message)
		}
		return
	}
	if len(descriptors) != 1 || fields["FDPOLL"] != "0" || name == "" || strings.ContainsAny(name, ": ") {
		t.Errorf("%q came with descriptors %v", message, descriptors)
		return
	}
	cookie, err := unix.GetsockoptUint64(descriptors[0], unix.SOL_SOCKET, unix.SO_COOKIE)
	if err != nil {
		t.Error(err)
	}
	switch had, ok := m.kept[name]; {
	case !ok:
		m.kept[name] = keptSocket{descriptors[0], cookie}
	case had.cookie == cookie: // systemd, too, closes what it has
		unix.Close(descriptors[0])
	default:
		t.Errorf("%s is kept already, as another socket", name)
	}
}

// names are what the manager keeps.
func (m *manager) names() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return strings.Join(slices.Sorted(maps.Keys(m.kept)), " ")
}

// cookieOf tells which socket the manager keeps by a name; 0: none.
func (m *manager) cookieOf(name string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.kept[name].cookie
}

func (m *manager) awaits(t *testing.T, want string) {
	t.Helper()
	proxytest.Eventually(t, func() bool { return m.names() == want }, "the manager keeps %q", want)
}

// start starts kube-proxy with what the manager keeps.
func (m *manager) start(t *testing.T, s *site, args ...string) *programtest.Program {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	var files []*os.File
	for name, kept := range m.kept {
		fd, err := unix.FcntlInt(uintptr(kept.fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		names, files = append(names, name), append(files, os.NewFile(uintptr(fd), name))
	}
	line := "exec kube-proxy -healthz_bind_address= -metrics_bind_address= -bind_address=127.0.0.1 -v=1 -dial_timeout=15s -dial_total_timeout=15s -etcd_servers=" +
		s.etcd.URL() + " " + strings.Join(args, " ")
	cmd := shell("export LISTEN_PID=$$; " + line)
	cmd.Env = append(os.Environ(), "NOTIFY_SOCKET="+m.path, "FDSTORE=2", fmt.Sprintf("LISTEN_FDS=%d", len(files)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	cmd.ExtraFiles = files
	p := programtest.Run(t, cmd)
	for _, f := range files {
		f.Close()
	}
	return p
}

func (s *site) keptName() string { return fmt.Sprintf("kube-proxy-tcp-%d", s.port) }

func kill(t *testing.T, p *programtest.Program) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	p.Exit(t)
}

// TestNobodyIsRefusedWhenTheProcessIsKilled, as long as the service manager keeps its listening sockets: who connects before the next
// process serves waits for it. A connection that was being relayed is lost.
func TestNobodyIsRefusedWhenTheProcessIsKilled(t *testing.T) {
	for _, engine := range []string{"portable", "epoll"} {
		t.Run(engine, func(t *testing.T) {
			s, m := newSite(t), newManager(t)
			p := m.start(t, s, "-engine="+engine)
			m.awaits(t, s.keptName())
			leave := s.press(t)
			for range 3 {
				kill(t, p)
				var waiting []*proxytest.Talk
				for range 5 {
					c := proxytest.TalkTo(t, proxytest.On(s.port))
					waiting = append(waiting, c)
				}
				p = m.start(t, s, "-engine="+engine)
				for _, c := range waiting {
					c.MustSay(t, "hello")
					c.Conn.Close()
				}
				p.Stderr.Wait(t, "it has passed 1")
			}
			leave()
		})
	}
}

// press has a client connect again and again until leave is called. It is never refused. It may be reset: it may have been accepted when the process
// was killed.
func (s *site) press(t *testing.T) (leave func()) {
	t.Helper()
	stop := make(chan struct{})
	var done sync.WaitGroup
	answered := 0
	done.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			c, err := net.DialTimeout("tcp", proxytest.On(s.port).String(), programtest.Patience)
			if err != nil {
				t.Errorf("after %d clients: %v", answered, err)
				return
			}
			if err := c.SetDeadline(time.Now().Add(programtest.Patience)); err != nil {
				t.Error(err)
			}
			fmt.Fprintln(c, "hello")
			_, err = bufio.NewReader(c).ReadString('\n')
			if err == nil {
				answered++
			} else if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a client waits for its answer: %v", err)
			}
			c.Close()
		}
	})
	leave = sync.OnceFunc(func() {
		close(stop)
		done.Wait()
		t.Logf("%d clients were answered", answered)
		if answered == 0 {
			t.Error("no client was answered")
		}
	})
	t.Cleanup(leave)
	return leave
}

// TestAKeptPortIsFreeAtOnceWhenItsServiceGoes, although the service manager still has the socket, and can be opened again. The same is true at the end of the process.
func TestAKeptPortIsFreeAtOnceWhenItsServiceGoes(t *testing.T) {
	for _, engine := range []string{"portable", "epoll"} {
		t.Run(engine, func(t *testing.T) {
			s, m := newSite(t), newManager(t)
			p := m.start(t, s, "-engine="+engine)
			m.awaits(t, s.keptName())
			m.mu.Lock() // it hears nothing now
			first := m.kept[s.keptName()].cookie
			hear := sync.OnceFunc(m.mu.Unlock)
			t.Cleanup(hear) // or a test that fails would wait for it
			s.withdraw(t)
			s.closes(t)
			s.offer(t)
			s.opens(t)
			s.talk(t).Conn.Close()
			hear()
			proxytest.Eventually(t, func() bool { now := m.cookieOf(s.keptName()); return now != 0 && now != first }, "the manager keeps the second socket")
			kill(t, p)
			p = m.start(t, s, "-engine="+engine) // it keeps the new one
			s.talk(t).Conn.Close()
			p.Signal(t, syscall.SIGTERM)
			if code := p.Exit(t).ExitCode(); code != exitDone {
				t.Errorf("exit status %d, want %d", code, exitDone)
			}
			m.awaits(t, "")
			if proxytest.Listens(proxytest.On(s.port)) {
				t.Errorf("port %d is open after the end", s.port)
			}
			if said := p.Stderr.String(); strings.Contains(said, "accept") {
				t.Errorf("the log speaks of accepting:\n%s", said)
			}
		})
	}
}

// TestAKeptSocketThatNoServiceWantsIsClosed once the first state is in force.
func TestAKeptSocketThatNoServiceWantsIsClosed(t *testing.T) {
	s, m := newSite(t), newManager(t)
	kept := s.port
	p := m.start(t, s)
	m.awaits(t, s.keptName())
	kill(t, p)
	s.withdraw(t)
	s.port = proxytest.FreePort(t)
	s.put(t, registry.SpecsPrefix+"chat", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"chat","port":%d}`, s.port))
	p = m.start(t, s)
	m.awaits(t, s.keptName())
	if proxytest.Listens(proxytest.On(kept)) {
		t.Errorf("port %d is open, and no service has it", kept)
	}
	p.Stderr.Wait(t, fmt.Sprintf("tcp port %d is closed: it was open before", kept))
}

// TestSocketsBeyondTheStoreAreServedButNotKept.
func TestSocketsBeyondTheStoreAreServedButNotKept(t *testing.T) {
	s, m := newSite(t), newManager(t)
	ports := []uint16{s.port}
	for i := range 2 {
		port := proxytest.FreePort(t)
		ports = append(ports, port)
		s.put(t, fmt.Sprintf("%sother%d", registry.SpecsPrefix, i), fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"other%d","port":%d}`, i, port))
	}
	p := m.start(t, s)
	p.Stderr.Wait(t, "the service manager keeps 2 listening sockets, which is FileDescriptorStoreMax= of the unit")
	proxytest.Eventually(t, func() bool { return len(strings.Fields(m.names())) == 2 }, "the manager keeps two")
	for _, port := range ports {
		if !proxytest.Listens(proxytest.On(port)) {
			t.Errorf("port %d is not open", port)
		}
	}
}

// TestASocketBeyondTheStoreIsKeptOnceAnotherPortCloses.
func TestASocketBeyondTheStoreIsKeptOnceAnotherPortCloses(t *testing.T) {
	s, m := newSite(t), newManager(t)
	p := m.start(t, s)
	m.awaits(t, s.keptName())
	var others []string
	for i := range 2 {
		port := proxytest.FreePort(t)
		others = append(others, fmt.Sprintf("kube-proxy-tcp-%d", port))
		s.put(t, fmt.Sprintf("%sother%d", registry.SpecsPrefix, i), fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"other%d","port":%d}`, i, port))
		proxytest.Eventually(t, func() bool { return len(strings.Fields(m.names())) == 2 }, "the manager keeps two")
	}
	p.Stderr.Wait(t, "the service manager keeps 2 listening sockets, which is FileDescriptorStoreMax= of the unit")
	s.withdraw(t)
	slices.Sort(others)
	m.awaits(t, strings.Join(others, " "))
}

// TestTheManagerClosesASocketOfAnotherAddressOnceItHears: until then the port cannot be opened, so that there is nothing else to tell the manager.
func TestTheManagerClosesASocketOfAnotherAddressOnceItHears(t *testing.T) {
	s, m := newSite(t), newManager(t)
	p := m.start(t, s)
	m.awaits(t, s.keptName())
	kill(t, p)
	if err := os.Rename(m.path, m.path+".away"); err != nil {
		t.Fatal(err)
	}
	p = m.start(t, s, "-bind_address=0.0.0.0")
	p.Stderr.Wait(t, fmt.Sprintf("is not used: it listens on %s", proxytest.On(s.port)))
	p.Stderr.Wait(t, fmt.Sprintf("cannot listen for chat on tcp port %d", s.port))
	if err := os.Rename(m.path+".away", m.path); err != nil {
		t.Fatal(err)
	}
	m.awaits(t, "")
	s.closes(t) // it opens when it has been free for a while
}

// TestASuccessorsSocketsAreKept: after a take-over, too, they survive a crash.
func TestASuccessorsSocketsAreKept(t *testing.T) {
	s, m := newSite(t), newManager(t)
	path := takeoverPath(t)
	first := m.start(t, s, "-takeover="+path)
	m.awaits(t, s.keptName())
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	second := m.start(t, s, "-takeover="+path)
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
	m.awaits(t, s.keptName())
	s.talk(t).Conn.Close()
	kill(t, second)
	c := proxytest.TalkTo(t, proxytest.On(s.port))
	third := m.start(t, s, "-takeover="+path)
	c.MustSay(t, "hello")
	c.Conn.Close()
	third.Signal(t, syscall.SIGTERM)
	third.Exit(t)
	m.awaits(t, "")
}

// TestAKeptSocketThatASuccessorDoesNotWantIsClosed, although the service manager has it: once the predecessor has ended, its port refuses clients.
func TestAKeptSocketThatASuccessorDoesNotWantIsClosed(t *testing.T) {
	for _, engine := range []string{"portable", "epoll"} {
		t.Run(engine, func(t *testing.T) {
			s, m := newSite(t), newManager(t)
			path := takeoverPath(t)
			unwanted := proxytest.FreePort(t)
			s.put(t, registry.SpecsPrefix+"other", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"other","port":%d}`, unwanted))
			first := m.start(t, s, "-engine="+engine, "-takeover="+path)
			proxytest.Eventually(t, func() bool { return len(strings.Fields(m.names())) == 2 }, "the manager keeps both")
			proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
			leave := s.press(t)
			second := m.start(t, s, "-engine="+engine, "-takeover="+path, fmt.Sprintf("-allowed_ports=%d", s.port))
			if code := first.Exit(t).ExitCode(); code != exitDone {
				t.Errorf("exit status %d, want %d", code, exitDone)
			}
			m.awaits(t, s.keptName())
			if proxytest.Listens(proxytest.On(unwanted)) {
				t.Errorf("port %d is open, and no service has it", unwanted)
			}
			leave()
			second.Signal(t, syscall.SIGTERM)
			second.Exit(t)
			m.awaits(t, "")
		})
	}
}
