package kernel

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// holdEnv has TestAKilledProcessLeavesNoTable hold a table until it is killed.
const holdEnv = "KERNEL_HOLDS_A_TABLE"

func newTable(t testing.TB) *nftTable {
	t.Helper()
	made, err := openTable(netip.IPv4Unspecified())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(made.close)
	return made.(*nftTable)
}

// manyPorts returns changes that add ports with endpoints.
func manyPorts(ports, endpoints int) []change {
	all := make([]change, ports)
	for i := range all {
		all[i].id = registry.ListenerID{Protocol: registry.TCP, Number: uint16(20000 + i)}
		all[i].after = backends(1, i, endpoints)
	}
	return all
}

// backends returns the addresses of endpoints in a network.
func backends(network byte, port, n int) []netip.AddrPort {
	all := make([]netip.AddrPort, n)
	for e := range all {
		all[e] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, network, byte(port), byte(e)}), 8080)
	}
	return all
}

func TestTheTableFollowsChanges(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	table := newTable(t)
	changes := manyPorts(300, 10) // more than one transaction
	changes = append(changes, change{id: dns, after: addresses("[fd00::1]:53", "[fd00::2]:5353")})
	if err := table.apply(changes); err != nil {
		t.Fatal(err)
	}
	count := func(set *nftables.Set) int {
		t.Helper()
		elements, err := table.conn.GetSetElements(set)
		if err != nil {
			t.Fatal(err)
		}
		return len(elements)
	}
	want := func(when string, ports4, endpoints4, ports6, endpoints6, carried4, carried6 int) {
		t.Helper()
		f := table.parts
		got := fmt.Sprint(count(f[0].ports), count(f[0].endpoints), count(f[1].ports), count(f[1].endpoints), count(f[0].carried), count(f[1].carried))
		if want := fmt.Sprint(ports4, endpoints4, ports6, endpoints6, carried4, carried6); got != want {
			t.Errorf("%s the sets have %s elements; want %s", when, got, want)
		}
	}
	senders := func(when string, senders4, hosts4, senders6, hosts6 int) {
		t.Helper()
		f := table.parts
		got := fmt.Sprint(count(f[0].senders), count(f[0].hosts), count(f[1].senders), count(f[1].hosts))
		if want := fmt.Sprint(senders4, hosts4, senders6, hosts6); got != want {
			t.Errorf("%s the sets of senders have %s elements; want %s", when, got, want)
		}
	}
	want("at first", 300, 3000, 1, 2, 3000, 2)
	senders("at first", 0, 0, 1, 1)
	if counts, err := table.connections(); err != nil || len(counts) != 301 {
		t.Errorf("%d counters, %v; want 301", len(counts), err)
	}
	if counts, err := table.connectionsOf([]change{{id: dns, before: addresses("[fd00::1]:53")}, {id: changes[0].id, before: changes[0].after}}); err != nil || len(counts) != 2 {
		t.Errorf("%d counters, %v; want 2", len(counts), err)
	}
	if counts, err := table.connectionsOf([]change{{id: changes[0].id, before: changes[0].after, after: changes[1].after}}); err != nil || len(counts) != 1 {
		t.Errorf("of a port that has as many endpoints as before: %d counters, %v; want 1", len(counts), err)
	}
	less := change{id: changes[0].id, before: changes[0].after, after: fill(changes[0].after, changes[0].after[1:])}
	other := change{id: dns, before: changes[300].after, after: addresses("10.0.0.53:53")}
	if err := table.apply([]change{less, other}); err != nil {
		t.Fatal(err)
	}
	want("after a change", 301, 3000, 0, 0, 3001, 2)
	senders("after a change", 0, 1, 0, 0)
	if err := table.apply([]change{{id: less.id, before: less.after}, {id: dns, before: other.after}}); err != nil {
		t.Fatal(err)
	}
	want("at last", 299, 2990, 0, 0, 3001, 2)
	senders("at last", 0, 0, 0, 0)
	if err := table.apply([]change{{id: less.id, after: less.after}}); err != nil { // one that comes back
		t.Fatal(err)
	}
	for looks, carried := range [][2]int{{3001, 2}, {3001, 2}, {2999, 0}} { // a packet may be on its way to what has just left
		want(fmt.Sprintf("after %d looks", looks), 300, 2999, 0, 0, carried[0], carried[1])
		if err := table.tidy(); err != nil {
			t.Fatal(err)
		}
	}
	if nft, err := exec.LookPath("nft"); err == nil { // it aborts if it does not understand how keys are declared
		out, err := exec.CommandContext(t.Context(), nft, "list", "table", "inet", table.nft.Name).CombinedOutput()
		if err != nil || !strings.Contains(string(out), "numgen random mod 10 map @endpoints4") {
			t.Errorf("nft: %v\n%.2000s", err, out)
		}
	}
}

func TestTheTableHasPortsOfAddresses(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	table := newTable(t)
	count := func(sets func(*part) *nftables.Set) (n [2 * atAddresses]int) {
		t.Helper()
		for i := range table.parts {
			elements, err := table.conn.GetSetElements(sets(&table.parts[i]))
			if err != nil {
				t.Fatal(err)
			}
			n[i] = len(elements)
		}
		return n
	}
	want := func(when, want string) {
		t.Helper()
		if got := fmt.Sprint(count(func(p *part) *nftables.Set { return p.ports }), count(func(p *part) *nftables.Set { return p.endpoints }),
			count(func(p *part) *nftables.Set { return p.senders }), count(func(p *part) *nftables.Set { return p.hosts }),
			count(func(p *part) *nftables.Set { return p.carried })); got != want {
			t.Errorf("%s the sets have %s elements; want %s", when, got, want)
		}
	}
	four, six, shielded := at("10.0.0.9", dns), at("fd00::9", dns), at("10.0.0.10", dns)
	two, two6 := addresses("10.0.0.1:53", "10.0.0.2:5353"), addresses("[fd00::1]:53", "[fd00::2]:5353")
	if err := table.apply([]change{{id: shielded, shields: true}, {id: dns, after: two}, {id: four, after: two}, {id: six, after: two6}}); err != nil {
		t.Fatal(err)
	}
	want("at first", "[1 0 2 1] [2 0 2 2] [1 0 1 1] [1 0 1 1] [2 0 2 2]")
	if counts, err := table.connections(); err != nil || len(counts) != 4 {
		t.Errorf("counters: %v, %v; want those of four ports", counts, err)
	}
	if counts, err := table.connectionsOf([]change{{id: dns, before: two}, {id: four, before: two}, {id: six, before: two6}}); err != nil || len(counts) != 3 {
		t.Errorf("counters: %v, %v; want those of three ports", counts, err)
	}
	if nft, err := exec.LookPath("nft"); err == nil {
		out, err := exec.CommandContext(t.Context(), nft, "list", "table", "inet", table.nft.Name).CombinedOutput()
		for _, want := range []string{
			"ip daddr . meta l4proto . th dport . numgen random mod 2 map @endpointsAt4", "ip6 daddr . meta l4proto . th dport vmap @portsAt6",
			"ct original ip daddr . meta l4proto . ct original proto-dst . ct reply ip saddr . ct reply proto-src @carriedAt4 masquerade",
			"10.0.0.10 . udp . 53 counter packets 0 bytes 0 : return",
		} {
			if err != nil || !strings.Contains(string(out), want) {
				t.Errorf("nft lists no %q: %v\n%.5000s", want, err, out)
			}
		}
	}
	if err := table.apply([]change{{id: shielded, shielded: true, after: two[:1]}, {id: four, before: two, shields: true}, {id: six, before: two6}}); err != nil {
		t.Fatal(err)
	}
	want("after a change", "[1 0 2 0] [2 0 1 0] [1 0 0 0] [1 0 1 0] [2 0 3 2]")
	if err := table.apply([]change{{id: shielded, before: two[:1]}, {id: four, shielded: true}, {id: dns, before: two}}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := table.tidy(); err != nil {
			t.Fatal(err)
		}
	}
	want("at last", "[0 0 0 0] [0 0 0 0] [0 0 0 0] [0 0 0 0] [0 0 0 0]")
}

func TestAKilledProcessLeavesNoTable(t *testing.T) {
	if os.Getenv(holdEnv) != "" {
		newTable(t)
		fmt.Println("held")
		select {}
	}
	if !proxytest.InOwnNetwork(t) {
		return
	}
	holder := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	holder.Env = append(os.Environ(), holdEnv+"=1")
	said, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscanf(said, "held\n"); err != nil {
		t.Errorf("the other process: %v", err)
	}
	conn, err := nftables.New()
	if err != nil {
		t.Fatal(err)
	}
	tables := func() int {
		all, err := conn.ListTables()
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	if n := tables(); n != 1 {
		t.Errorf("there are %d tables; want that of the other process", n)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // it was killed
	proxytest.Eventually(t, func() bool { return tables() == 0 }, "its table is gone")
}

// ownNetwork gives the goroutine of a benchmark a network of its own.
func ownNetwork(b *testing.B) {
	b.Helper()
	if os.Getuid() != 0 {
		b.Skip("it takes root")
	}
	runtime.LockOSThread() // for good: the thread ends with the goroutine, and the network with it
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		b.Skipf("it takes a network of its own: %v", err)
	}
}

// BenchmarkChange measures a change of one endpoint of one port while the table has 10,000 ports of 10 endpoints, in a network of its own.
func BenchmarkChange(b *testing.B) {
	ownNetwork(b)
	table := newTable(b)
	all := manyPorts(10_000, 10)
	began := time.Now()
	if err := table.apply(all); err != nil {
		b.Fatal(err)
	}
	loaded := time.Since(began)
	has := all[5000].after
	for i := 0; b.Loop(); i++ {
		next := append(backends(byte(2+i%2), 0, 1), has[1:]...)
		if err := table.apply([]change{{id: all[5000].id, before: has, after: next}}); err != nil {
			b.Fatal(err)
		}
		has = next
	}
	b.ReportMetric(float64(loaded.Milliseconds()), "ms-to-load-all")
}
