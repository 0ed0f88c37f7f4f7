//go:build linux

package portable

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/tcp"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A network stands in for the real one where time matters, or what only a large or broken network
// does. It notes each dial: the last byte of the address, and when.
type network struct {
	start  time.Time
	mu     sync.Mutex // guards dials
	dials  []string
	answer map[byte]func(ctx context.Context) (*net.TCPConn, error) // by the last byte of the address
}

func (n *network) dial(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
	ip := to.Addr().As16()
	n.mu.Lock()
	n.dials = append(n.dials, fmt.Sprintf("%d at %v", ip[15], time.Since(n.start)))
	n.mu.Unlock()
	return n.answer[ip[15]](ctx)
}

// dialled lists the dials so far.
func (n *network) dialled() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.dials)
}

func refuse(context.Context) (*net.TCPConn, error) { return nil, fails(syscall.ECONNREFUSED) }

// swallow is what a black hole does.
func swallow(ctx context.Context) (*net.TCPConn, error) {
	<-ctx.Done()
	return nil, fails(ctx.Err())
}

func fails(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }

func connectTo(conn *net.TCPConn) func(context.Context) (*net.TCPConn, error) {
	return func(context.Context) (*net.TCPConn, error) { return conn, nil }
}

// newTestDialer makes a dialer into the network, with the timeouts that are standard.
func newTestDialer(n *network) *dialer {
	time.Sleep(-monotonic.Now()) // a bubble begins in the year 2000, before that clock does
	n.start = time.Now()
	d := newDialer(engine.Config{}.WithDefaults(), admit.NewResolver(admit.NewOwnPorts(proxytest.Loopback)), new(sync.WaitGroup))
	d.dial = n.dial
	return d
}

// reachOf dials the endpoints of r for one client.
func (d *dialer) reachOf(ctx context.Context, r *rotation.Rotation) (*net.TCPConn, *rotation.Endpoint, []tcp.Failure) {
	var race tcp.Race
	race.Begin(&d.races, r.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil), monotonic.Now())
	conn, e := d.reach(ctx, &race, nil)
	return conn, e, race.Failures()
}

// turnedAway dials for one client, which must be turned away.
func turnedAway(t *testing.T, d *dialer, r *rotation.Rotation) (failed []tcp.Failure) {
	t.Helper()
	conn, _, failed := d.reachOf(t.Context(), r)
	if conn != nil {
		t.Fatal("an endpoint answered")
	}
	return failed
}

// down lists the endpoints of r that are ejected.
func down(r *rotation.Rotation) (ns []int) {
	for _, e := range r.Endpoints() {
		if !e.Status().EjectedUntil.IsZero() {
			ns = append(ns, enginetest.NumberOf(e))
		}
	}
	return ns
}

func TestDialMovesOnToTheNextEndpointAndToNoneTwice(t *testing.T) { // D37
	conn, _ := tcpPair(t)
	n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){1: refuse, 2: refuse, 3: connectTo(conn)}}
	d, r := newTestDialer(n), enginetest.NewRotation(enginetest.Addresses(1, 2, 3)...)
	got, e, failed := d.reachOf(t.Context(), r)
	if got != conn || enginetest.NumberOf(e) != 3 || len(failed) != 2 || enginetest.NumberOf(failed[0].Endpoint) != 1 || enginetest.NumberOf(failed[1].Endpoint) != 2 {
		t.Errorf("reached %v after %v; want endpoint 3 after 1 and 2", e.Addr, failed)
	}
	if got := down(r); !slices.Equal(got, []int{1, 2}) {
		t.Errorf("endpoints %v are ejected from now on; want 1 and 2", got)
	}

	n.dials, n.answer[3] = nil, refuse
	failed = turnedAway(t, d, r)
	tried := make(map[int]bool)
	for _, f := range failed {
		tried[enginetest.NumberOf(f.Endpoint)] = true
	}
	if len(failed) != 3 || len(tried) != 3 || len(n.dialled()) != 3 {
		t.Errorf("dialled %v; want each of the three once", n.dialled())
	}
	if turnedAway(t, d, enginetest.NewRotation()) != nil {
		t.Error("a rotation without endpoints was tried")
	}
}

func TestDialForgivesAnEndpointThatAnswersAgain(t *testing.T) {
	conn, _ := tcpPair(t)
	n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){1: refuse}}
	d, r := newTestDialer(n), enginetest.NewRotation(enginetest.Addresses(1)...)
	turnedAway(t, d, r)
	n.answer[1] = connectTo(conn)
	if got, _, _ := d.reachOf(t.Context(), r); got != conn || down(r) != nil {
		t.Errorf("reached %v, and %v are ejected; want the connection, and nobody", got, down(r))
	}
}

// Several attempts must fit into the time that a client is kept waiting, however long each may take.
func TestDialSharesItsTimeAmongTheEndpoints(t *testing.T) {
	for _, c := range []struct {
		attempt, total time.Duration
		endpoints      int
		want           string
		blamed         int
	}{
		{time.Second, 5 * time.Second, 1, "1 at 0s, end at 1s", 1},
		{time.Second, 5 * time.Second, 3, "1 at 0s, 2 at 250ms, 3 at 500ms, end at 1.5s", 3},
		{5 * time.Second, 5 * time.Second, 2, "1 at 0s, 2 at 250ms, end at 5s", 2},
		// The silence of the last was too short to hold it against them, and for more there is no time.
		{9 * time.Second, time.Second, 9, "1 at 0s, 2 at 250ms, 3 at 500ms, 4 at 750ms, end at 1s", 3},
	} {
		t.Run(fmt.Sprintf("%d endpoints with %v in %v", c.endpoints, c.attempt, c.total), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := &network{answer: make(map[byte]func(context.Context) (*net.TCPConn, error))}
				var list []registry.Addr
				for i := range c.endpoints {
					n.answer[byte(i+1)] = swallow
					list = append(list, enginetest.Address(i+1))
				}
				d, r := newTestDialer(n), enginetest.NewRotation(list...)
				d.races.Limits.DialTimeout, d.races.Limits.DialTotalTimeout = c.attempt, c.total
				turnedAway(t, d, r)
				got := strings.Join(n.dialled(), ", ") + fmt.Sprintf(", end at %v", time.Since(n.start))
				if got != c.want {
					t.Errorf("got  %s\nwant %s", got, c.want)
				}
				blamed := 0
				for _, e := range r.Endpoints() {
					if !e.Status().EjectedUntil.IsZero() {
						blamed++
					}
				}
				if blamed != c.blamed {
					t.Errorf("%d endpoints are blamed; want %d", blamed, c.blamed)
				}
			})
		})
	}
}

func TestDialTriesTheNextAddressOfAHostNameBesideASilentOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){1: swallow, 2: refuse, 3: swallow}}
		d := newTestDialer(n)
		d.races.Resolver.Lookup = func(context.Context, string, string) ([]netip.Addr, error) {
			time.Sleep(time.Second)
			return []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::2"), netip.MustParseAddr("10.0.0.3")}, nil
		}
		r := enginetest.NewRotation(enginetest.Named("db.example", 80))
		turnedAway(t, d, r)
		got := strings.Join(n.dialled(), ", ") + fmt.Sprintf(", end at %v", time.Since(n.start))
		// At 5 s the answer is old enough for another look, which the client waits half a second for.
		if want := "1 at 1s, 2 at 1.25s, 3 at 1.25s, end at 5.5s"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if r.Endpoints()[0].Status().EjectedUntil.IsZero() {
			t.Error("the endpoint is not ejected from now on")
		}
		time.Sleep(time.Second) // until that look-up has ended
		synctest.Wait()
		if used := d.races.Resolver.Budget.Used.Load(); used != 0 {
			t.Errorf("%d descriptors are still taken", used)
		}
	})
}

// TestDialWaitsForANameLongerThanForAnAddress: a nameserver that is dead costs five seconds, and no client its connection.
func TestDialWaitsForANameLongerThanForAnAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{}
		d := newTestDialer(n)
		reached := time.Duration(0)
		d.races.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			time.Sleep(6 * time.Second) // beyond DialTotalTimeout
			return []netip.Addr{netip.MustParseAddr("10.0.0.1")}, nil
		}
		d.dial = func(context.Context, netip.AddrPort) (*net.TCPConn, error) {
			reached = time.Since(n.start)
			return nil, fails(syscall.ECONNREFUSED)
		}
		turnedAway(t, d, enginetest.NewRotation(enginetest.Named("db.example", 80)))
		if reached != 6*time.Second {
			t.Errorf("dialled after %v; want 6s", reached)
		}
	})
}

// TestDNSThatFailsIsHeldAgainstNoEndpoint: the client is turned away for the name, and the endpoint keeps its health.
func TestDNSThatFailsIsHeldAgainstNoEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDialer(&network{})
		d.races.Resolver.Lookup = func(ctx context.Context, _, _ string) ([]netip.Addr, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		r := enginetest.NewRotation(enginetest.Named("db.example", 80))
		start := time.Now()
		failed := turnedAway(t, d, r)
		if got := tcp.WhyNone(failed); got != traffic.NameFailed || time.Since(start) != admit.LookUpTimeout {
			t.Errorf("turned away after %v with %s, want %v and name_failed", time.Since(start), got, admit.LookUpTimeout)
		}
		if e := r.Endpoints()[0]; down(r) != nil || e.Status().Failures != 0 || e.BeginDial(1) != nil {
			t.Errorf("the endpoint is blamed: %d failures", e.Status().Failures)
		}
	})
}

// TestWithoutDescriptorsNoEndpointIsTriedBesideASilentOne: what is tried beside the first attempt is paid from the budget.
func TestWithoutDescriptorsNoEndpointIsTriedBesideASilentOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){1: swallow, 2: swallow, 3: swallow}}
		d, r := newTestDialer(n), enginetest.NewRotation(enginetest.Addresses(1, 2, 3)...)
		budget := admit.NewBudget(300)
		d.races.Resolver.Budget = budget
		before := budget.Clients - budget.Last() - 1 // one is left, and those that are for others
		if !budget.Take(before) {
			t.Fatal("no room")
		}
		turnedAway(t, d, r)
		got := strings.Join(n.dialled(), ", ")
		if want := "1 at 0s, 2 at 250ms, 3 at 4s"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		if used := int(budget.Used.Load()); used != before {
			t.Errorf("%d descriptors are taken; want what was before, %d", used, before)
		}
	})
}

func TestDialEndsAtOnceWhenItIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){1: swallow, 2: swallow}}
		d, r := newTestDialer(n), enginetest.NewRotation(enginetest.Addresses(1, 2)...)
		ctx, cut := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cut)
		if conn, _, _ := d.reachOf(ctx, r); conn != nil || time.Since(n.start) != 100*time.Millisecond || len(n.dialled()) != 1 {
			t.Errorf("dialled %v and ended after %v; want one dial, ended after 100ms", n.dialled(), time.Since(n.start))
		}
		if down(r) != nil {
			t.Errorf("endpoints %v are blamed for it", down(r))
		}
	})
}

// When it is we who are short of descriptors, no endpoint is to blame, and none would do better.
func TestDialBlamesNoEndpointForOurOwnShortage(t *testing.T) {
	n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){
		1: func(context.Context) (*net.TCPConn, error) { return nil, fails(syscall.EMFILE) },
	}}
	d, r := newTestDialer(n), enginetest.NewRotation(enginetest.Addresses(1, 2)...)
	if failed := turnedAway(t, d, r); len(failed) != 1 || down(r) != nil {
		t.Errorf("tried %v, and %v are ejected from now on; want one tried and nobody blamed", failed, down(r))
	}
}

func TestDialRefusesOurOwnListenersAndMovesOn(t *testing.T) {
	conn, _ := tcpPair(t)
	n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){2: connectTo(conn)}}
	d := newTestDialer(n)
	d.races.Resolver.Own.Add(enginetest.TCPPort(80))
	r := enginetest.NewRotation(proxytest.At(proxytest.On(80)), enginetest.Address(2))
	got, _, failed := d.reachOf(t.Context(), r)
	if got != conn || len(failed) != 1 || !errors.Is(failed[0].Err, admit.ErrOwnListener) {
		t.Errorf("reached %v after %v; want the other endpoint after %v", got, failed, admit.ErrOwnListener)
	}
	if down(r) != nil {
		t.Error("the endpoint would not be tried as soon as it is no longer ours")
	}
}

// A dial of a closed port, from that same port: the kernel connects it to itself.
// Package net asks for another one at first; a dialer that is told its own port does not.
func TestDialUndoesAConnectionToItself(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	proxytest.NothingLeaks(t)
	self := proxytest.On(40000)
	fromItself := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(self)}
	d := newTestDialer(&network{})
	d.dial = func(ctx context.Context, to netip.AddrPort) (*net.TCPConn, error) {
		conn, err := fromItself.DialContext(ctx, "tcp", to.String())
		if err != nil {
			t.Fatalf("this kernel does not connect a port to itself: %v", err)
		}
		return conn.(*net.TCPConn), nil
	}
	r := enginetest.NewRotation(proxytest.At(self))
	failed := turnedAway(t, d, r)
	if len(failed) != 1 || !errors.Is(failed[0].Err, admit.ErrReachedItself) || down(r) == nil {
		t.Errorf("got %v; want that it reached itself, and is ejected", failed)
	}
	proxytest.ServeTCP(t, self.String(), proxytest.Hold) // its port is free again
}

// A connection to an endpoint, and what the kernel remembers of it when it has ended, must not keep
// a service from its port.
func TestAPortThatADialHasForItsOwnCanBeListenedOn(t *testing.T) {
	if !proxytest.InOwnNetwork(t) { // where no other program's connections have the same port
		return
	}
	e := newTestEngine(t, engine.Config{})
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Hold)
	conn, _, failed := e.dialer.reachOf(t.Context(), enginetest.NewRotation(server.Addr))
	if conn == nil {
		t.Fatal(failed)
	}
	defer conn.Close()
	own := conn.LocalAddr().(*net.TCPAddr).AddrPort()
	for _, state := range []string{"connected", "closed"} {
		s, err := e.Listen(enginetest.TCPPort(own.Port()), enginetest.OwnerOf(enginetest.NewRotation()))
		if err != nil {
			t.Errorf("while a dial from the port is %s: %v", state, err)
			continue
		}
		s.Close()
		conn.Close() // before the endpoint does, so that the kernel remembers (TIME_WAIT)
	}
}

// Local ports are scarce for each endpoint by itself: when they are used up towards one, another is tried. When they are
// towards all, that is why.
func TestWithoutALocalPortTowardsOneEndpointAnotherIsTried(t *testing.T) {
	conn, _ := tcpPair(t)
	noPort := func(context.Context) (*net.TCPConn, error) { return nil, fails(syscall.EADDRNOTAVAIL) }
	n := &network{answer: map[byte]func(context.Context) (*net.TCPConn, error){1: noPort, 2: connectTo(conn)}}
	d, r := newTestDialer(n), enginetest.NewRotation(enginetest.Addresses(1, 2)...)
	if got, e, failed := d.reachOf(t.Context(), r); got != conn || enginetest.NumberOf(e) != 2 || len(failed) != 1 {
		t.Errorf("reached %v after %v; want endpoint 2 after 1", e, failed)
	}
	n.answer[2] = noPort
	failed := turnedAway(t, d, enginetest.NewRotation(enginetest.Addresses(1, 2)...))
	if got := tcp.WhyNone(failed); got != traffic.DescriptorLimit {
		t.Errorf("the client is turned away for %v", got)
	}
	if got := new(tcp.Connection).Explain(traffic.DescriptorLimit, failed); !strings.Contains(got, "ip_local_port_range") {
		t.Errorf("the log says: %s", got)
	}
}
