package faultproxy_test

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/scripts/chaos/clustertest"
	"kubeproxy/scripts/chaos/faultproxy"
)

// TestOnlyTheWatchFallsSilent: the connection of a watch is found by the method that was called on it. Lists over other connections still
// work, and so do writes.
func TestOnlyTheWatchFallsSilent(t *testing.T) {
	for name, m := range map[string]faultproxy.Mode{"both ways": faultproxy.Blackhole, "to the proxy": faultproxy.MuteTarget} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Start(t, 1)
			p := c.Members[0].Way
			client := clustertest.Client(t, c)
			if err := clustertest.Read(t, client, clustertest.Patience); err != nil {
				t.Fatal(err)
			}
			w := clustertest.Open(t, c)
			if n := p.Count(faultproxy.Watches); n != 1 {
				t.Fatalf("%d of %d connections watch; want 1", n, p.Count(faultproxy.All))
			}
			w.Receives(t, clustertest.Write(t, c))
			p.Set(faultproxy.Watches, m)
			for range 3 {
				clustertest.Write(t, c)
				if err := clustertest.Read(t, client, clustertest.Patience); err != nil {
					t.Errorf("a read beside the watch: %v", err)
				}
			}
			w.ReceivesNothing(t)
			p.Set(faultproxy.Watches, faultproxy.Mode{})
			if err := p.Restore(); err != nil {
				t.Fatal(err)
			}
			clustertest.Write(t, c)
			w.ReceivesNothing(t) // what has lost bytes stays silent
			if n := p.Count(faultproxy.Watches); n != 1 {
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
		mode    faultproxy.Mode
		arrives bool
	}{{"to the proxy", faultproxy.MuteTarget, true}, {"to etcd", faultproxy.MuteClient, false}} {
		t.Run(tt.name, func(t *testing.T) {
			c := clustertest.Start(t, 1)
			client := clustertest.Client(t, c)
			if err := clustertest.Read(t, client, clustertest.Patience); err != nil {
				t.Fatal(err)
			}
			c.Members[0].Way.Set(faultproxy.All, tt.mode)
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
	c := clustertest.Start(t, 1)
	w := clustertest.Open(t, c)
	c.Members[0].Way.Set(faultproxy.Watches, faultproxy.MuteClient)
	w.Receives(t, clustertest.Write(t, c))
	ctx, cancel := t.Context(), func() {}
	defer cancel()
	if err := w.Client.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
		t.Fatal(err)
	}
	w.Receives(t, clustertest.Write(t, c))
}

func TestHeldBytesArriveLate(t *testing.T) {
	c := clustertest.Start(t, 1)
	w := clustertest.Open(t, c)
	p := c.Members[0].Way
	p.Set(faultproxy.Watches, faultproxy.Hold)
	late := clustertest.Write(t, c)
	w.ReceivesNothing(t)
	if err := p.Restore(); err != nil {
		t.Fatal(err)
	}
	w.Receives(t, late)
}

func TestRefusedMeansRefused(t *testing.T) {
	c := clustertest.Start(t, 1)
	p := c.Members[0].Way
	conn, err := net.Dial("tcp", p.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	waitFor(t, "connection", func() bool { return p.Count(faultproxy.All) == 1 })
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
	if err := clustertest.Read(t, clustertest.Client(t, c), clustertest.Patience); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestADeadMemberIsRefused: a client does not take the fault proxy for a member that runs.
func TestADeadMemberIsRefused(t *testing.T) {
	c := clustertest.Start(t, 1)
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
	for name, m := range map[string]faultproxy.Mode{"both ways": faultproxy.Blackhole, "to the proxy": faultproxy.MuteTarget} {
		t.Run(name, func(t *testing.T) {
			c := clustertest.Start(t, 1)
			p := c.Members[0].Way
			conn, err := net.Dial("tcp", p.Addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			waitFor(t, "connection", func() bool { return p.Count(faultproxy.All) == 1 })
			p.Set(faultproxy.All, m)
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
	for deadline := time.Now().Add(clustertest.Patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, clustertest.Patience)
		}
	}
}

func TestASlowFaultProxyTakesItsTime(t *testing.T) {
	c := clustertest.Start(t, 1)
	p := c.Members[0].Way
	client := clustertest.Client(t, c)
	if err := clustertest.Read(t, client, clustertest.Patience); err != nil {
		t.Fatal(err)
	}
	const delay = 200 * time.Millisecond
	p.Slow(delay)
	began := time.Now()
	if err := clustertest.Read(t, client, clustertest.Patience); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("a read took %v; want at least %v", took, delay)
	}
}
