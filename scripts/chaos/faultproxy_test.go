package main

import (
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"kubeproxy/registry"
)

// TestOnlyTheWatchFallsSilent: the connection of a watch is known by what was called on it; the lists
// beside it go on, and so do the writes that the watch does not hear of.
func TestOnlyTheWatchFallsSilent(t *testing.T) {
	for name, m := range map[string]mode{"both ways": deaf, "to the proxy": mute} {
		t.Run(name, func(t *testing.T) {
			c, _ := begin(t, 1)
			b := c.members[0].faultProxy
			client := throughFaultProxies(t, c)
			if err := reads(t, client, patience); err != nil {
				t.Fatal(err)
			}
			w := watchThrough(t, c)
			if n := b.conns(watches); n != 1 {
				t.Fatalf("%d of %d connections watch; want 1", n, b.conns(all))
			}
			w.hears(t, write(t, c))
			b.set(watches, m)
			for range 3 {
				write(t, c)
				if err := reads(t, client, patience); err != nil {
					t.Errorf("a read beside the watch: %v", err)
				}
			}
			w.hearsNothing(t)
			b.set(watches, sound)
			if err := b.restore(); err != nil {
				t.Fatal(err)
			}
			write(t, c)
			w.hearsNothing(t) // what has lost bytes stays silent
			if n := b.conns(watches); n != 1 {
				t.Errorf("%d connections watch; want the one that nobody has told anything", n)
			}
		})
	}
}

// TestOneWay: a request whose answer is swallowed has been carried out; one that is swallowed itself
// has not.
func TestOneWay(t *testing.T) {
	for _, tt := range []struct {
		name    string
		mode    mode
		arrives bool
	}{{"to the proxy", mute, true}, {"to etcd", unheard, false}} {
		t.Run(tt.name, func(t *testing.T) {
			c, _ := begin(t, 1)
			client := throughFaultProxies(t, c)
			if err := reads(t, client, patience); err != nil {
				t.Fatal(err)
			}
			c.members[0].faultProxy.set(all, tt.mode)
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
			direct, err := c.client()
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

// TestAnUnheardWatchGoesOnSpeaking: with only the way to etcd cut, events arrive and questions do not.
func TestAnUnheardWatchGoesOnSpeaking(t *testing.T) {
	c, _ := begin(t, 1)
	w := watchThrough(t, c)
	c.members[0].faultProxy.set(watches, unheard)
	w.hears(t, write(t, c))
	ctx, cancel := t.Context(), func() {}
	defer cancel()
	if err := w.client.RequestProgress(clientv3.WithRequireLeader(ctx)); err != nil {
		t.Fatal(err)
	}
	w.hears(t, write(t, c))
}

func TestHeldBytesArriveLate(t *testing.T) {
	c, _ := begin(t, 1)
	w := watchThrough(t, c)
	b := c.members[0].faultProxy
	b.set(watches, suspended)
	late := write(t, c)
	w.hearsNothing(t)
	if err := b.restore(); err != nil {
		t.Fatal(err)
	}
	w.hears(t, late)
}

func TestRefusedMeansRefused(t *testing.T) {
	c, _ := begin(t, 1)
	b := c.members[0].faultProxy
	conn, err := net.Dial("tcp", b.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	waitFor(t, "a lane", func() bool { return b.conns(all) == 1 })
	b.refuse()
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("an open connection ends with %v; want a reset", err)
	}
	if _, err := net.Dial("tcp", b.addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a new connection: %v; want that it is refused", err)
	}
	if err := b.restore(); err != nil {
		t.Fatal(err)
	}
	if err := reads(t, throughFaultProxies(t, c), patience); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestADeadMemberIsRefused: a fault proxy before nobody lets nobody believe in somebody.
func TestADeadMemberIsRefused(t *testing.T) {
	c, _ := begin(t, 1)
	c.members[0].Kill()
	conn, err := net.Dial("tcp", c.members[0].faultProxy.addr)
	if err == nil { // else it was reset before net had done with connecting
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ends with %v; want a reset", err)
	}
}

// TestTheDeathOfAMemberIsSwallowedToo: what says nothing does not say that it has ended.
func TestTheDeathOfAMemberIsSwallowedToo(t *testing.T) {
	for name, m := range map[string]mode{"both ways": deaf, "to the proxy": mute} {
		t.Run(name, func(t *testing.T) {
			c, _ := begin(t, 1)
			b := c.members[0].faultProxy
			conn, err := net.Dial("tcp", b.addr)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			waitFor(t, "a lane", func() bool { return b.conns(all) == 1 })
			b.set(all, m)
			c.members[0].Kill()
			for range 3 { // the first makes a dead peer answer with a reset, the next would be told
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
	for deadline := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, patience)
		}
	}
}

func TestASlowFaultProxyTakesItsTime(t *testing.T) {
	c, _ := begin(t, 1)
	b := c.members[0].faultProxy
	client := throughFaultProxies(t, c)
	if err := reads(t, client, patience); err != nil {
		t.Fatal(err)
	}
	const delay = 200 * time.Millisecond
	b.slow(delay)
	began := time.Now()
	if err := reads(t, client, patience); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < delay {
		t.Errorf("a read took %v; want at least %v", took, delay)
	}
}
