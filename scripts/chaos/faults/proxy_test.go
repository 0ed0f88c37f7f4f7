package faults

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// TestOnlyTheWatchFallsSilent: the connection of a watch is found by the method that was called on it. Lists over other connections still
// work, and so do writes.
func TestOnlyTheWatchFallsSilent(t *testing.T) {
	for name, m := range map[string]Mode{"both ways": Blackhole, "to the proxy": MuteTarget} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			p := c.Members[0].Way
			client := clientOf(t, c)
			if err := readRegistry(t, client, stepTimeout); err != nil {
				t.Fatal(err)
			}
			w := openWatch(t, c)
			if n := p.Count(WatchConns); n != 1 {
				t.Fatalf("%d of %d connections watch; want 1", n, p.Count(EveryConn))
			}
			w.Receives(t, writeKey(t, c))
			p.Set(WatchConns, m)
			for range 3 {
				writeKey(t, c)
				if err := readRegistry(t, client, stepTimeout); err != nil {
					t.Errorf("a read beside the watch: %v", err)
				}
			}
			w.ReceivesNothing(t)
			p.Set(WatchConns, Mode{})
			if err := p.Restore(); err != nil {
				t.Fatal(err)
			}
			writeKey(t, c)
			w.ReceivesNothing(t) // what has lost bytes stays silent
			if n := p.Count(WatchConns); n != 1 {
				t.Errorf("%d connections watch; want the one that has received no error", n)
			}
		})
	}
}

// TestOneWay: a request whose answer is swallowed has been carried out; one that is swallowed itself
// has not.
func TestOneWay(t *testing.T) {
	for _, tt := range []struct {
		name    string
		mode    Mode
		arrives bool
	}{{"to the proxy", MuteTarget, true}, {"to etcd", MuteClient, false}} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster(t, 1)
			client := clientOf(t, c)
			if err := readRegistry(t, client, stepTimeout); err != nil {
				t.Fatal(err)
			}
			c.Members[0].Way.Set(EveryConn, tt.mode)
			put := make(chan error, 1)
			go func() {
				_, err := client.Put(t.Context(), registry.SpecsPrefix+"through", "1")
				put <- err
			}()
			select {
			case err := <-put:
				t.Fatalf("the write was answered: %v", err)
			case <-time.After(500 * time.Millisecond):
			}
			direct, err := c.Client()
			if err != nil {
				t.Fatal(err)
			}
			defer direct.Close()
			r, err := direct.Get(t.Context(), registry.SpecsPrefix+"through", clientv3.WithCountOnly())
			if err != nil {
				t.Fatal(err)
			}
			if got := r.Count == 1; got != tt.arrives {
				t.Errorf("the write arrived: %t; want %t", got, tt.arrives)
			}
		})
	}
}

// TestAWatchWhoseRequestsAreLostStillReceives: events arrive at the client, and requests do not arrive at etcd.
func TestAWatchWhoseRequestsAreLostStillReceives(t *testing.T) {
	c := newCluster(t, 1)
	w := openWatch(t, c)
	c.Members[0].Way.Set(WatchConns, MuteClient)
	w.Receives(t, writeKey(t, c))
	ctx, cancel := t.Context(), func() {}
	defer cancel()
	if err := w.client.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
		t.Fatal(err)
	}
	w.Receives(t, writeKey(t, c))
}

func TestHeldBytesArriveLate(t *testing.T) {
	c := newCluster(t, 1)
	w := openWatch(t, c)
	p := c.Members[0].Way
	p.Set(WatchConns, Hold)
	late := writeKey(t, c)
	w.ReceivesNothing(t)
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	w.Receives(t, late)
}

func TestRefusedMeansRefused(t *testing.T) {
	c := newCluster(t, 1)
	p := c.Members[0].Way
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	waitFor(t, "connection", func() bool { return p.Count(EveryConn) == 1 })
	p.Refuse()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an open connection ends with %v; want a reset", err)
	}
	if _, err := net.Dial("tcp", p.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v; want that it is refused", err)
	}
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	if err := readRegistry(t, clientOf(t, c), stepTimeout); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestADeadMemberIsRefused: a client does not take the fault proxy for a member that runs.
func TestADeadMemberIsRefused(t *testing.T) {
	c := newCluster(t, 1)
	c.Members[0].Kill()
	conn, err := net.Dial("tcp", c.Members[0].Way.Addr)
	if err == nil { // else it was reset while net was still connecting
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ends with %v; want a reset", err)
	}
}

// TestTheDeathOfAMemberIsHiddenToo: a direction that loses bytes also loses the end of its connection.
func TestTheDeathOfAMemberIsHiddenToo(t *testing.T) {
	for name, m := range map[string]Mode{"both ways": Blackhole, "to the proxy": MuteTarget} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1)
			p := c.Members[0].Way
			conn, err := net.Dial("tcp", p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			waitFor(t, "connection", func() bool { return p.Count(EveryConn) == 1 })
			p.Set(EveryConn, m)
			c.Members[0].Kill()
			for range 3 { // the first makes the dead peer answer with a reset, and the next would fail
				if _, err := conn.Write([]byte("x")); err != nil {
					t.Fatalf("write: %v", err)
				}
				time.Sleep(20 * time.Millisecond)
			}
			if err := conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			var timeout net.Error
			if _, err := conn.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("the connection says %v; want silence", err)
			}
		})
	}
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(stepTimeout); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, stepTimeout)
		}
	}
}

func TestASlowFaultProxyTakesItsTime(t *testing.T) {
	c := newCluster(t, 1)
	p := c.Members[0].Way
	client := clientOf(t, c)
	if err := readRegistry(t, client, stepTimeout); err != nil {
		t.Fatal(err)
	}
	const delay = 200 * time.Millisecond
	p.Slow(delay)
	began := time.Now()
	if err := readRegistry(t, client, stepTimeout); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("a read took %v; want at least %v", took, delay)
	}
}
