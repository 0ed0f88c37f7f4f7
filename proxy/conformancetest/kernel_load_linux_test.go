package conformancetest

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"

	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// What clients notice of events while the kernel carries their port: they come at a rate, however long those before them wait.

var handOvers = flag.Int("kernel.handovers", 50, "how often a port moves between kernel and userspace under load")

// A load is clients on the other machine, each of which asks once.
type load struct {
	w     *wire
	at    string
	done  chan struct{}
	comes sync.WaitGroup

	mu   sync.Mutex // guards the fields below
	now  *phase
	all  []*phase
	from net.Addr // of clients of the next phases
}

// A phase is the clients that came between two events.
type phase struct {
	ctx              context.Context
	abandon          context.CancelFunc // those that still wait give up, and fail
	clients          sync.WaitGroup
	from             net.Addr // of the clients; nil: any address
	answered, failed atomic.Int64
	first            atomic.Pointer[string] // why the first that failed did
	lastFailed       atomic.Int64           // when the last of those came that failed, in nanoseconds since 1970
}

// begin begins a phase.
func (l *load) begin() *phase {
	p := &phase{from: l.from}
	p.ctx, p.abandon = context.WithCancel(context.Background())
	l.now, l.all = p, append(l.all, p)
	return p
}

// load has clients come to a port of the node, one in each interval, until the test ends. Of more than so many at one time the machine has
// fallen behind: others wait then.
func (w *wire) load(at string, interval time.Duration, atOnce int) *load {
	l := &load{w: w, at: at, done: make(chan struct{})}
	l.begin()
	room := make(chan struct{}, atOnce)
	l.comes.Go(func() {
		for next := time.Now(); !isClosed(l.done); next = next.Add(interval) {
			if behind := time.Since(next); behind > 100*time.Millisecond {
				next = next.Add(behind) // else a machine that fell behind would stay so
			}
			time.Sleep(time.Until(next))
			select {
			case room <- struct{}{}:
			case <-l.done:
				return
			}
			l.mu.Lock()
			p := l.now
			p.clients.Go(func() {
				p.note(time.Now(), l.ask(p))
				<-room
			})
			l.mu.Unlock()
		}
	})
	w.t.Cleanup(func() {
		l.stop()
		for _, p := range l.all {
			p.mayFail()
		}
	})
	return l
}

// ask is one client.
func (l *load) ask(p *phase) error {
	var conn net.Conn
	err := l.w.Within(func() (err error) {
		dialer := net.Dialer{Timeout: proxytest.Patience, LocalAddr: p.from}
		conn, err = dialer.DialContext(p.ctx, "tcp", l.at)
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(p.ctx, func() { conn.Close() })()
	_, err = say(conn)
	return err
}

// note notes what became of a client that came at a time.
func (p *phase) note(came time.Time, err error) {
	if err == nil {
		p.answered.Add(1)
		return
	}
	p.failed.Add(1)
	for last := p.lastFailed.Load(); last < came.UnixNano() && !p.lastFailed.CompareAndSwap(last, came.UnixNano()); last = p.lastFailed.Load() {
	}
	text := err.Error()
	p.first.CompareAndSwap(nil, &text)
}

// next ends a phase, and waits until clients of the following one were answered.
func (l *load) next() *phase {
	l.mu.Lock()
	last := l.now
	next := l.begin()
	l.mu.Unlock()
	proxytest.Eventually(l.w.t, func() bool { return next.answered.Load() >= 20 }, "clients of %s that are answered", l.at)
	return last
}

// stop ends the load; the last phase ends with it.
func (l *load) stop() (last *phase) {
	if l.mu.Lock(); !isClosed(l.done) {
		close(l.done)
	}
	l.mu.Unlock()
	l.comes.Wait()
	return l.now
}

// mustHold fails the test if a client of the phase fails.
func (p *phase) mustHold(t *testing.T, when string) {
	t.Helper()
	p.clients.Wait()
	if failed := p.failed.Load(); failed > 0 {
		t.Errorf("%s: %d clients failed, and %d were answered; the first: %s", when, failed, p.answered.Load(), *p.first.Load())
	}
}

// failedUntil returns how long after an event the last client came that failed; 0 if none did.
func (p *phase) failedUntil(event time.Time) time.Duration {
	if last := p.lastFailed.Load(); last != 0 {
		return time.Unix(0, last).Sub(event).Round(time.Millisecond)
	}
	return 0
}

// mayFail ends a phase whose clients may have met an endpoint that no check has found yet.
func (p *phase) mayFail() (failed int64) {
	p.abandon()
	p.clients.Wait()
	return p.failed.Load()
}

func TestNoClientIsRefusedWhileAPortMovesBetweenKernelAndUserspace(t *testing.T) {
	onAWire(t, func(w *wire) {
		n := w.node()
		one, two := w.serve("one", "10.77.0.3:9000"), w.serve("two", "10.77.0.4:9000")
		of := func(b registry.Balance) change {
			return func(batch *registry.Batch) {
				checkedService("web", tcp(8080), registry.Check{})(batch)
				batch.Services[named("web")].Asked.Balance = b
			}
		}
		n.apply(of(registry.RoundRobin), endpoints("web", one.Addr, two.Addr))
		n.becomes(kernel.Carried)
		began := time.Now()
		clients := w.load("10.77.0.1:8080", 2*time.Millisecond, 64)
		answered := func() int64 { return clients.now.answered.Load() + clients.now.failed.Load() }
		for i := range *handOvers {
			to, reason := registry.LeastConnections, kernel.Terms
			if i%2 == 1 {
				to, reason = registry.RoundRobin, kernel.Carried
			}
			before := answered()
			n.apply(of(to))
			n.becomes(reason)
			proxytest.Eventually(t, func() bool { return answered() >= before+5 }, "clients, hand-over %d", i)
		}
		took := time.Since(began)
		last := clients.stop()
		last.mustHold(t, "while the port moved")
		n.end()
		sum := totalsOf(n, "web")
		if sum.Carried == 0 || sum.Carried == sum.Begun {
			t.Errorf("of %d connections the kernel carried %d; want some, and not all", sum.Begun, sum.Carried)
		}
		proxytest.Report("%d hand-overs in %v: %d clients (%.0f a second), %d failed, the kernel carried %d", *handOvers, took.Round(time.Millisecond),
			sum.Begun, float64(sum.Begun)/took.Seconds(), last.failed.Load(), sum.Carried)
	})
}

// stoppedEnv has TestClientsAreAnsweredOnceChecksHaveFoundWhatDiedOrHangs be an endpoint at this address.
const stoppedEnv = "KERNEL_ENDPOINT"

func TestClientsAreAnsweredOnceChecksHaveFoundWhatDiedOrHangs(t *testing.T) {
	if addr := os.Getenv(stoppedEnv); addr != "" {
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println("ready")
		answerAll(l, "stopped", func(net.Conn) {})
		return
	}
	if !*wholeSuite {
		t.Skip("it takes most of a minute on a busy machine; make kernel-suite runs it")
	}
	onAWire(t, func(w *wire) {
		n := w.node() // with the default checks of -kernel=auto, as checkedService has their interval
		fall := time.Duration(checks.Defaults().Fall) * checkEvery
		well := w.serve("well", "10.77.0.3:9000")
		dead, deaf := w.serve("dead", "10.77.0.4:9000"), w.serve("deaf", "10.77.0.4:9001")
		process := w.process(stoppedEnv + "=10.77.0.4:9002")
		stopped := proxytest.At(addrPort("10.77.0.4:9002"))
		n.apply(
			checkedService("dead", tcp(8080), registry.Check{}), endpoints("dead", well.Addr, dead.Addr),
			checkedService("deaf", tcp(8081), registry.Check{}), endpoints("deaf", well.Addr, deaf.Addr),
			checkedService("stopped", tcp(8082), registry.Check{Path: "/"}), endpoints("stopped", well.Addr, stopped))
		n.becomes(kernel.Carried)
		loads := make(map[string]*load)
		for name, at := range map[string]string{"dead": "10.77.0.1:8080", "deaf": "10.77.0.1:8081", "stopped": "10.77.0.1:8082"} {
			loads[name] = w.load(at, 20*time.Millisecond, 2000)
		}
		for name, l := range loads {
			l.next().mustHold(t, name+": while all endpoints are well")
		}
		began := time.Now()
		dead.close()
		w.deafen(deaf)
		if err := process.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		n.failing(3)
		n.becomes(kernel.Carried)
		took := time.Since(began)
		bars := map[string]time.Duration{"dead": 2 * time.Second, "deaf": fall, "stopped": fall}
		for name, l := range loads {
			// From another address: the connection table still has the attempts of those before, and would send a client from the same port
			// the same way.
			l.from = &net.TCPAddr{IP: net.IPv4(10, 77, 0, 3)}
			p := l.next()
			failed, until := p.mayFail(), p.failedUntil(began)
			proxytest.Report("%s: %d clients failed, or waited; the last of them came %v after the event (bar %v); the kernel carried all after %v",
				name, failed, until, bars[name], took.Round(time.Millisecond))
			if until > bars[name] {
				t.Errorf("%s: a client that came %v after the event failed; want none after %v", name, until, bars[name])
			}
		}
		for name, l := range loads {
			l.next().mustHold(t, name+": once the checks have failed")
			l.stop().mustHold(t, name+": once the checks have failed")
		}
		n.end()
		for name := range loads {
			if sum := totalsOf(n, name); sum.Carried == 0 {
				t.Errorf("the kernel carried no client of %s", name)
			}
		}
	})
}

func TestNoClientFailsByARemovalAFlushOrATakeOverWhileTheKernelCarries(t *testing.T) {
	onAWire(t, func(w *wire) {
		nodes := newNodesOf(t, kernelConfig(), kernelConfig())
		one, two := w.serve("one", "10.77.0.3:9000"), w.serve("two", "10.77.0.4:9000")
		records := []change{checkedService("web", tcp(8080), registry.Check{}), endpoints("web", one.Addr, two.Addr)}
		nodes[0].apply(records...)
		nodes[0].becomes(kernel.Carried)
		clients := w.load("10.77.0.1:8080", 5*time.Millisecond, 64)
		clients.next()

		records[1] = endpoints("web", two.Addr)
		nodes[0].apply(records...)
		clients.next().mustHold(t, "an endpoint is removed")
		one.close()
		clients.next().mustHold(t, "it is gone")

		firewall, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		if firewall.FlushRuleset(); firewall.Flush() != nil {
			t.Fatal("the ruleset cannot be flushed")
		}
		clients.next().mustHold(t, "a firewall flushes the ruleset")

		nodes[0].passTo(nodes[1], records...)
		nodes[1].becomes(kernel.Carried)
		clients.next().mustHold(t, "a successor takes over")
		clients.stop().mustHold(t, "the successor carries the port")
		nodes[1].end()
		for i, n := range nodes {
			if sum := totalsOf(n, "web"); sum.Carried == 0 {
				t.Errorf("the kernel carried no client of node %d", i)
			}
		}
	})
}

// nodeEnv has TestAfterAKillTheNextProcessAnswersAndTheKernelCarriesAgain be a node.
const nodeEnv = "KERNEL_NODE"

func TestAfterAKillTheNextProcessAnswersAndTheKernelCarriesAgain(t *testing.T) {
	const endpoint = "10.77.0.3:9000"
	records := []change{checkedService("web", tcp(8080), registry.Check{}), endpoints("web", proxytest.At(addrPort(endpoint)))}
	if os.Getenv(nodeEnv) != "" {
		n := newNode(t, kernelConfig())
		n.apply(records...)
		n.becomes(kernel.Carried)
		fmt.Println("ready")
		select {}
	}
	onAWire(t, func(w *wire) {
		w.serve("one", endpoint)
		process := run(t, nodeEnv+"=1")
		clients := w.load("10.77.0.1:8080", 5*time.Millisecond, 64)
		clients.next()
		killed := time.Now()
		if err := process.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = process.Wait()   // it was killed; its port is free now
		run(t, nodeEnv+"=1") // as a supervisor does
		p := clients.next()
		failed := p.mayFail()
		proxytest.Report("%d clients failed from the kill until the next process carried the port, the last %v after the kill", failed, p.failedUntil(killed))
		clients.stop().mustHold(t, "the next process runs")
	})
}

// run starts the test once more in the same network, with variables, and waits until it says that it is ready.
func run(t *testing.T, variables ...string) *exec.Cmd {
	t.Helper()
	process, err := again(t, variables...)
	if err != nil {
		t.Fatal(err)
	}
	return process
}

// process is run on the other machine.
func (w *wire) process(variables ...string) (process *exec.Cmd) {
	w.t.Helper()
	w.Do(w.t, func() (err error) {
		process, err = again(w.t, variables...)
		return err
	})
	return process
}

func again(t *testing.T, variables ...string) (*exec.Cmd, error) {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	said, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have been killed
		_ = cmd.Wait()         // or has been waited for
	})
	if _, err := fmt.Fscanf(said, "ready\n"); err != nil {
		rest, _ := bufio.NewReader(said).ReadString(0)
		return nil, fmt.Errorf("the other process: %w\n%s", err, rest)
	}
	return cmd, nil
}

// deafen has an endpoint neither accept nor refuse any more: its queue of connections is full.
func (w *wire) deafen(e *remote) {
	w.t.Helper()
	e.close()
	w.Do(w.t, func() error {
		listener, err := net.Listen("tcp", e.Addr.IP.String())
		if err != nil {
			return err
		}
		w.t.Cleanup(func() { listener.Close() })
		raw, err := listener.(*net.TCPListener).SyscallConn()
		if err != nil {
			return err
		}
		if cerr := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); cerr != nil || err != nil {
			return fmt.Errorf("listen: %w, %w", cerr, err)
		}
		filler, err := net.DialTimeout("tcp", e.Addr.IP.String(), proxytest.Patience)
		if err == nil {
			w.t.Cleanup(func() { filler.Close() })
		}
		return err
	})
}
