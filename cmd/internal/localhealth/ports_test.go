package localhealth

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kubeproxy/registry"
)

func TestMain(m *testing.M) {
	if err := flag.Set("logtostderr", "true"); err != nil { // glog's: a log file would look like a leak
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// A memory is a network without sockets, for fake time.
type memory struct {
	refuse func() error // why an address cannot be listened on; nil: each can
	accept func() error // why an accept fails; nil: none does

	mu        sync.Mutex // guards the fields below
	listening map[string]*memoryListener
	attempts  map[string]int

	conns atomic.Int64 // that the server holds
}

type memoryListener struct {
	network *memory
	address string
	clients chan net.Conn
	closed  chan struct{}
	close   sync.Once
}

func (m *memory) listen(_, address string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.attempts[address]++
	if m.refuse != nil {
		if err := m.refuse(); err != nil {
			return nil, &net.OpError{Op: "listen", Net: "tcp", Err: err}
		}
	}
	l := &memoryListener{network: m, address: address, clients: make(chan net.Conn), closed: make(chan struct{})}
	m.listening[address] = l
	return l, nil
}

func (l *memoryListener) Accept() (net.Conn, error) {
	if l.network.accept != nil {
		if err := l.network.accept(); err != nil {
			return nil, &net.OpError{Op: "accept", Net: "tcp", Err: err}
		}
	}
	select {
	case conn := <-l.clients:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memoryListener) Close() error {
	l.close.Do(func() {
		l.network.mu.Lock()
		defer l.network.mu.Unlock()
		delete(l.network.listening, l.address)
		close(l.closed)
	})
	return nil
}

func (l *memoryListener) Addr() net.Addr { return &net.TCPAddr{} }

// open returns the addresses that are listened on.
func (m *memory) open() map[string]*memoryListener {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.listening)
}

// tries returns how often an address was tried to be listened on.
func (m *memory) tries(address string) int {
	synctest.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.attempts[address]
}

// dial returns the client's end of a new connection; nil without a listener.
func (m *memory) dial(address string) net.Conn {
	l := m.open()[address]
	if l == nil {
		return nil
	}
	client, server := net.Pipe()
	m.conns.Add(1)
	l.clients <- &held{Conn: server, closed: sync.OnceFunc(func() { m.conns.Add(-1) })}
	synctest.Wait()
	return client
}

// ask returns the status of an answer; 0 without one.
func (m *memory) ask(address string) int {
	conn := m.dial(address)
	if conn == nil {
		return 0
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: node\r\n\r\n"); err != nil {
		return 0
	}
	got, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	return got.StatusCode
}

// A held connection is one of the server's.
type held struct {
	net.Conn
	closed func()
}

func (h *held) Close() error { h.closed(); return h.Conn.Close() }

// inMemory runs a server in fake time, on a node that has an endpoint of each service.
func inMemory(t *testing.T, test func(t *testing.T, s *Server, m *memory)) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{listening: make(map[string]*memoryListener), attempts: make(map[string]int)}
		s := New(netip.MustParseAddr("10.0.0.1"), func() bool { return true }, func(name registry.Name) int { return min(len(name.Name), 1) })
		s.listen = m.listen
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { s.Run(ctx) })
		defer func() {
			stop()
			running.Wait()
			if left := m.open(); len(left) > 0 {
				t.Errorf("after the end %d ports are open", len(left))
			}
		}()
		test(t, s, m)
	})
}

func address(port int) string { return fmt.Sprintf("10.0.0.1:%d", port) }

// numbered services ask for the ports first to last, each for one. Without a service, they ask no more.
func numbered(first, last int, service func(port uint16) *registry.Service) registry.Batch {
	b := registry.Batch{Services: make(map[registry.Name]*registry.Service)}
	for port := first; port <= last; port++ {
		b.Services[registry.Name{Namespace: "default", Name: fmt.Sprintf("s%d", port)}] = service(uint16(port))
	}
	return b
}

// logged has glog write to a file until the test ends. The function that it returns gives the lines so far.
func logged(t *testing.T) (lines func() []string) {
	t.Helper()
	file, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	stderr := os.Stderr
	os.Stderr = file
	t.Cleanup(func() { os.Stderr = stderr; file.Close() })
	return func() []string {
		t.Helper()
		text, err := os.ReadFile(file.Name())
		if err != nil {
			t.Fatal(err)
		}
		return slices.Collect(strings.Lines(string(text)))
	}
}

func TestOfTooManyPortsTheLowestAreOpenedAndStay(t *testing.T) {
	lines := logged(t)
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		s.OnUpdate(numbered(5001, 5000+MaxPorts+200, asking))
		lowest := func(what string, first int) {
			t.Helper()
			open, wrong := m.open(), 0
			for port := first; port < first+MaxPorts; port++ {
				if m.ask(address(port)) != http.StatusOK {
					wrong++
				}
			}
			if len(open) != MaxPorts || wrong > 0 {
				t.Errorf("%s, %d ports are open, and %d of the %d lowest do not answer 200", what, len(open), wrong, MaxPorts)
			}
		}
		lowest("at first", 5001)
		s.OnUpdate(numbered(5000+MaxPorts+201, 5000+MaxPorts+201, asking))
		lowest("with one more", 5001)
		s.OnUpdate(numbered(5001, 5100, func(uint16) *registry.Service { return nil }))
		lowest("without 100 services", 5101)
		for port := 5001; port <= 5100+MaxPorts; port++ {
			if n := m.tries(address(port)); n != 1 {
				t.Fatalf("port %d was opened %d times; want once", port, n)
			}
		}
	})
	if got := lines(); len(got) != 1 || !strings.Contains(got[0], "200 ports") {
		t.Errorf("the log says %q; want one line about 200 ports", got)
	}
}

func TestServicesThatAskForOnePortDoNotFightOverIt(t *testing.T) {
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		a, b := registry.Name{Name: "a"}, registry.Name{Name: "b"}
		for _, c := range []struct {
			changed registry.Name
			port    uint16
			want    registry.Name
		}{{b, 5000, b}, {a, 5000, a}, {a, 0, b}} {
			s.OnUpdate(registry.Batch{Services: map[registry.Name]*registry.Service{c.changed: asking(c.port)}})
			if got := (*s.wanted.Load())[5000]; got != c.want {
				t.Errorf("after %v asked for port %d, %v has port 5000; want %v", c.changed, c.port, got, c.want)
			}
		}
		if n := m.tries(address(5000)); n != 1 {
			t.Errorf("the port was opened %d times; want once", n)
		}
	})
}

func TestAPortOfAPredecessorIsOpenedOnceThatHasEnded(t *testing.T) {
	lines := logged(t)
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		began := time.Now()
		m.refuse = func() error {
			if time.Since(began) < 130*time.Millisecond {
				return syscall.EADDRINUSE
			}
			return nil
		}
		s.learn(asking(5000))
		time.Sleep(130*time.Millisecond + quickRetry)
		if got := m.ask(address(5000)); got != http.StatusOK {
			t.Errorf("%v after the predecessor's end the port answers %d; want 200", quickRetry, got)
		}
		if got := lines(); len(got) > 0 {
			t.Errorf("a take-over was logged: %q", got)
		}
	})
}

func TestAPortThatCannotBeOpenedIsTriedEachSecondAndLogged(t *testing.T) {
	for _, c := range []struct {
		name  string
		err   error
		quick int           // attempts before it is logged
		after time.Duration // it is logged
	}{
		{"in use", syscall.EADDRINUSE, int(quickFor / quickRetry), quickFor},
		{"not allowed", syscall.EACCES, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			lines := logged(t)
			inMemory(t, func(t *testing.T, s *Server, m *memory) {
				m.refuse = func() error { return c.err }
				expect := func(when string, wantTries, wantLines int) {
					t.Helper()
					if tries, lines := m.tries(address(5000)), lines(); tries != wantTries || len(lines) != wantLines {
						t.Errorf("%s it was tried %d times, and the log says %q; want %d, and %d lines", when, tries, lines, wantTries, wantLines)
					}
				}
				s.learn(asking(5000))
				if c.after > 0 {
					time.Sleep(c.after - time.Millisecond)
					expect("shortly before", c.quick, 0)
					time.Sleep(time.Millisecond)
				}
				expect("then", c.quick+1, 1)
				time.Sleep(10 * retry)
				expect("after 10 seconds more", c.quick+11, 1)
			})
		})
	}
}

// TestAClientThatCannotBeAcceptedClosesNoPort, and takes few lines of the log. Package http gives a listener up that lacks memory.
func TestAClientThatCannotBeAcceptedClosesNoPort(t *testing.T) {
	for _, want := range []syscall.Errno{syscall.EMFILE, syscall.ENOMEM} {
		lines := logged(t)
		inMemory(t, func(t *testing.T, s *Server, m *memory) {
			began := time.Now()
			m.accept = func() error {
				if time.Since(began) < 30*time.Second {
					return want
				}
				return nil
			}
			const ports = 20
			s.OnUpdate(numbered(5001, 5000+ports, asking))
			time.Sleep(31 * time.Second)
			for port := 5001; port <= 5000+ports; port++ {
				if got, n := m.ask(address(port)), m.tries(address(port)); got != http.StatusOK || n != 1 {
					t.Errorf("after %v port %d answers %d, and was opened %d times; want 200, and once", want, port, got, n)
				}
			}
		})
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], want.Error()) {
			t.Errorf("the log says %q; want one line of %v", got, want)
		}
	}
}

func TestClientsOfAllPortsShareOneRoom(t *testing.T) {
	inMemory(t, func(t *testing.T, s *Server, m *memory) {
		const room, ports = 32, 20 // of the usual reserve of 128 descriptors
		s.OnUpdate(numbered(5001, 5000+ports, asking))
		began := time.Now()
		for i := range 2 * room {
			defer m.dial(address(5001 + i%ports)).Close() // it says nothing
		}
		if n := m.conns.Load(); n != room {
			t.Errorf("%d silent clients of %d ports hold %d connections; want %d", 2*room, ports, n, room)
		}
		if got := m.ask(address(5000 + ports)); got != http.StatusOK {
			t.Errorf("while they do, a load balancer is answered with %d; want 200", got)
		}
		if time.Since(began) > 0 {
			t.Error("some silent clients may have been closed by their deadline")
		}
		time.Sleep(clientMay)
		synctest.Wait()
		if n := m.conns.Load(); n != 0 {
			t.Errorf("after %v silent clients hold %d connections; want none", clientMay, n)
		}
	})
}
