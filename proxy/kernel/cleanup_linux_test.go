package kernel

import (
	"bytes"
	"maps"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// leave makes a table like ours without an owner, as a program may that restores a saved ruleset.
func leave(t *testing.T, name string, changes ...change) {
	t.Helper()
	left := &nftTable{leaving: make(map[flow]struct{})}
	var err error
	left.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(raw *netlink.Conn) error {
		left.raw = raw
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer left.close()
	left.nft = left.conn.AddTable(&nftables.Table{Name: name, Family: nftables.TableFamilyINet})
	if err := left.addRules(netip.IPv4Unspecified()); err != nil {
		t.Fatal(err)
	}
	if err := left.apply(changes); err != nil {
		t.Fatal(err)
	}
}

func tableNames(t *testing.T) (all []string) {
	t.Helper()
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables, err := conn.ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		all = append(all, table.Name)
	}
	slices.Sort(all)
	return all
}

func TestCleanupDeletesWhatNoProcessOwns(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	if deleted, owned, err := Cleanup(); len(deleted)+len(owned) > 0 || err != nil {
		t.Errorf("nothing is left, and it found %q, %q, %v", deleted, owned, err)
	}
	running := newTable(t).nft.Name
	const first, second = "kube-proxy-1-0123abcd", "kube-proxy-4194304-ffffffff"
	others := []string{"kube-proxy", "kube-proxy-1-0123abcd-mine", "kube-proxy-x-0123abcd", "my-kube-proxy-1-0123abcd"}
	for _, name := range append([]string{first, second}, others...) {
		leave(t, name, change{id: web, after: addresses("10.0.0.1:80")})
	}
	deleted, owned, err := Cleanup()
	slices.Sort(deleted)
	if !slices.Equal(deleted, []string{first, second}) || !slices.Equal(owned, []string{running}) || err != nil {
		t.Errorf("deleted %q, owned %q, %v; want only %s owned", deleted, owned, err, running)
	}
	want := append([]string{running}, others...)
	if slices.Sort(want); !slices.Equal(tableNames(t), want) {
		t.Errorf("there are the tables %q; want %q", tableNames(t), want)
	}
}

// A client that goes on keeps a flow, as long as there is a table with chains of type nat: here that of a process that runs.
func TestCleanupEndsTheUDPFlowsOfATable(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	const listener, endpoint = "10.9.9.1:53", "10.9.9.2:5353"
	answerWithTheirNames(t, listener, endpoint)
	newTable(t)
	for _, id := range []registry.ListenerID{dns, at("10.9.9.1", dns)} {
		leave(t, "kube-proxy-1-0123abcd", change{id: id, after: addresses(endpoint)}, change{id: web, after: addresses("[fd00::1]:80")})
		client := aClientOf(t, listener)
		client.isAnsweredBy(endpoint)
		if deleted, _, err := Cleanup(); len(deleted) != 1 || err != nil {
			t.Errorf("deleted %q, %v", deleted, err)
		}
		client.isAnsweredBy(listener)
	}
}

// What a process makes that has begun alone is left to it: see TestCloseDeletesTheFlowsThatNoSuccessorHas.
func TestTheUDPFlowsThatTablesOfProcessesMakeAreFound(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	leave(t, "kube-proxy-1-0123abcd", change{id: dns, after: addresses("10.0.0.9:53")})
	if flows, err := flowsOfOthers(); flows != nil || err != nil {
		t.Errorf("without a process there are %v, %v", flows, err)
	}
	newTable(t)
	if flows, err := flowsOfOthers(); flows == nil || len(flows) > 0 || err != nil {
		t.Errorf("of a table without ports there are %v, %v; want an empty map", flows, err)
	}
	own := at("10.9.9.1", dns)
	for _, c := range []change{{id: dns, after: addresses("10.0.0.1:53", "10.0.0.2:5353")}, {id: own, after: addresses("10.0.0.1:53")}, {id: web, after: addresses("[fd00::1]:80")}} {
		if err := newTable(t).apply([]change{c}); err != nil {
			t.Fatal(err)
		}
	}
	want := make(map[flow]bool)
	for _, f := range append(flowsOf(dns, "10.0.0.1:53", "10.0.0.2:5353"), flowsOf(own, "10.0.0.1:53")...) {
		want[f] = true
	}
	if flows, err := flowsOfOthers(); !maps.Equal(flows, want) || err != nil {
		t.Errorf("there are %v, %v; want %v", flows, err, want)
	}
}

// answerWithTheirNames opens sockets at addresses that the loopback gets, each of which answers with its address.
func answerWithTheirNames(t *testing.T, all ...string) {
	t.Helper()
	for _, at := range all {
		proxytest.MustRun(t, "ip", "addr", "add", netip.MustParseAddrPort(at).Addr().String()+"/32", "dev", "lo")
		answerWithItsName(t, at)
	}
}

func answerWithItsName(t *testing.T, at string) {
	t.Helper()
	conn, err := net.ListenPacket("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for buf := make([]byte, 100); ; {
			_, client, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteTo([]byte(at), client) // the client reads it, or asks again
		}
	}()
	t.Cleanup(func() { conn.Close() })
}

// An asker is a UDP client that asks who answers.
type asker struct {
	t *testing.T
	net.Conn
}

func aClientOf(t *testing.T, listener string) asker {
	t.Helper()
	conn, err := net.Dial("udp4", listener)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return asker{t, conn}
}

func (a asker) isAnsweredBy(want string) {
	a.t.Helper()
	buf := make([]byte, 100)
	proxytest.Eventually(a.t, func() bool {
		if _, err := a.Write([]byte("who?")); err != nil {
			return false
		}
		_ = a.SetReadDeadline(time.Now().Add(100 * time.Millisecond)) // it is open
		n, err := a.Read(buf)
		return err == nil && bytes.Equal(buf[:n], []byte(want))
	}, "%s answers", want)
}
