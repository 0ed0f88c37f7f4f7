package conformancetest

import (
	"slices"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// standingBy says where the unnamed port of a service is answered, and that the last addresses stand by.
func standingBy(name string, addrs []registry.Addr, backups ...registry.Addr) change {
	return func(b *registry.Batch) {
		endpoints(name, append(slices.Clip(addrs), backups...)...)(b)
		list := &b.Endpoints[named(name)].ByPort[0]
		list.Places = registry.PlacesOf(list.Addrs, func(a registry.Addr) registry.Place {
			if slices.Contains(backups, a) {
				return registry.Backup
			}
			return 0
		})
	}
}

// whoAnswers returns who answers a new client of a port where all chat.
func whoAnswers(t *testing.T, port uint16) string {
	t.Helper()
	client := proxytest.TalkTo(t, proxytest.On(port))
	defer client.Conn.Close()
	return client.MustSay(t, "who?")
}

func (s suite) TestABackupIsGivenClientsOnlyWhileNoOtherEndpointAnswers(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	first, second := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("first")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("second"))
	backup := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("backup"))
	n.apply(service("web", tcp(port)), standingBy("web", []registry.Addr{first.Addr, second.Addr}, backup.Addr))
	ask := func(want ...string) {
		t.Helper()
		for range 6 {
			if who := whoAnswers(t, port); !slices.Contains(want, who) {
				t.Errorf("a client was given %s; want one of %q", who, want)
			}
		}
	}
	ask("first", "second")
	first.Close()
	ask("second")
	second.Close()
	kept := proxytest.TalkTo(t, proxytest.On(port))
	if who := kept.MustSay(t, "hello"); who != "backup" {
		t.Fatalf("while no other answers, a client was given %s", who)
	}
	again := proxytest.ServeTCP(t, first.Addr.String(), proxytest.Chat("first"))
	defer again.Close()
	proxytest.Eventually(t, func() bool { return whoAnswers(t, port) == "first" }, "clients to be given the endpoint that answers again") // once its ejection has ended
	ask("first")
	if who := kept.MustSay(t, "still here"); who != "backup" {
		t.Errorf("the client of the backup goes on with %s", who)
	}
}

// TestABackupStandsInForEndpointsWithoutAWeight, and none is needed where all endpoints stand by.
func (s suite) TestABackupStandsInForEndpointsWithoutAWeight(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	first, backup := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("first")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("backup"))
	both := standingBy("web", []registry.Addr{first.Addr}, backup.Addr)
	n.apply(service("web", tcp(port)), func(b *registry.Batch) {
		both(b)
		b.Endpoints[named("web")].Weights = registry.Weights(first.Addr.String() + "=0")
	})
	if who := whoAnswers(t, port); who != "backup" {
		t.Errorf("beside an endpoint of weight 0, a client was given %s", who)
	}
	n.apply(both)
	if who := whoAnswers(t, port); who != "first" {
		t.Errorf("when that has a weight, a client was given %s", who)
	}
	n.apply(standingBy("web", nil, first.Addr, backup.Addr))
	for _, name := range []string{"first", "backup"} {
		proxytest.Eventually(t, func() bool { return whoAnswers(t, port) == name }, "of two endpoints that both stand by, clients to be given %s", name)
	}
}

// TestAffinityHoldsNoClientOnABackup: it stands in for the time in which no other endpoint answers, and not for that of the affinity.
func (s suite) TestAffinityHoldsNoClientOnABackup(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	first, backup := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("first")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("backup"))
	n.apply(sticky("web", time.Hour, tcp(port)), standingBy("web", []registry.Addr{first.Addr}, backup.Addr))
	if who := whoAnswers(t, port); who != "first" {
		t.Fatalf("a client was given %s", who)
	}
	first.Close()
	for range 2 {
		if who := whoAnswers(t, port); who != "backup" {
			t.Fatalf("while the first does not answer, a client was given %s", who)
		}
	}
	again := proxytest.ServeTCP(t, first.Addr.String(), proxytest.Chat("first"))
	defer again.Close()
	proxytest.Eventually(t, func() bool { return whoAnswers(t, port) == "first" }, "the client to leave the backup")
}

func (s suite) TestSessionsAreGivenABackupOnlyWhileThereIsNoOther(t *testing.T) {
	n := newNode(t, s.config())
	port := proxytest.FreePort(t)
	first, backup := servedUDP(t, "first"), servedUDP(t, "backup")
	n.apply(service("dns", udp(port)), standingBy("dns", []registry.Addr{first}, backup))
	for range 4 {
		if a := proxytest.DialUDP(t, proxytest.On(port)).Ask(t); a.Name != "first" {
			t.Errorf("a session was given %s", a.Name)
		}
	}
	client := proxytest.DialUDP(t, proxytest.On(port))
	if a := client.Ask(t); a.Name != "first" {
		t.Errorf("a session was given %s", a.Name)
	}
	n.apply(standingBy("dns", nil, backup))
	if a := client.Ask(t); a.Name != "backup" {
		t.Errorf("when the first has gone, the session has %s", a.Name)
	}
	n.apply(standingBy("dns", []registry.Addr{first}, backup))
	if a := client.Ask(t); a.Name != "backup" {
		t.Errorf("the session of a backup goes on with %s", a.Name)
	}
	if a := proxytest.DialUDP(t, proxytest.On(port)).Ask(t); a.Name != "first" {
		t.Errorf("beside it, a session was given %s", a.Name)
	}
}
