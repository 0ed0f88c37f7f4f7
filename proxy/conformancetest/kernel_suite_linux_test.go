package conformancetest

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/kernel"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// The suite with a node whose kernel carries clients wherever it can: clients and endpoints are on another machine, and all services have
// their endpoints checked. Checks find out at once what has happened to an endpoint, since the promises between that and the next check
// are others: docs/kernel.md has them.

// A rig is the other machine of the suite, and the nodes of the test that runs.
type rig struct {
	*proxytest.Apart
	mu    sync.Mutex // guards the field below
	nodes []*checkedNode
}

// A checkedNode is a node whose checks the rig answers.
type checkedNode struct {
	*node
	batch sync.Mutex // held while a batch is applied: no check ends meanwhile, so a new target is still unknown then

	mu    sync.Mutex // guards the fields below
	asked map[checks.Key]int
	names bool // of the goroutine of the test: endpoints have had names: such a target may never be asked
}

// separate has clients and endpoints be on the other machine from now on.
func (w *wire) separate() *rig {
	w.address("10.77.0.5/24", "10.77.0.10/24")
	for _, addr := range []string{"10.77.1.2/24", "10.77.1.3/24"} {
		proxytest.MustRun(w.t, "ip", "addr", "add", addr, "dev", "here")
	}
	// The node and the other machine say of each datagram to a closed port that it is refused, as the loopback does.
	unlimited := func() error { return os.WriteFile("/proc/sys/net/ipv4/icmp_ratelimit", []byte("0"), 0) }
	if err := unlimited(); err != nil {
		w.t.Fatal(err)
	}
	w.Do(w.t, unlimited)
	w.Do(w.t, func() error { return exec.Command("ip", "route", "add", "10.77.1.0/24", "via", "10.77.0.1").Run() })
	r := new(rig)
	r.Apart = &proxytest.Apart{
		Within: w.Within,
		Node: func(ip netip.Addr) netip.Addr {
			switch last := ip.AsSlice(); {
			case ip.Is6():
				return netip.MustParseAddr("fd77::1")
			case last[3] == 1:
				return netip.MustParseAddr("10.77.0.1")
			default:
				return netip.AddrFrom4([4]byte{10, 77, 1, last[3]})
			}
		},
		Remote: func(ip netip.Addr) netip.Addr {
			if ip.Is6() {
				return netip.MustParseAddr("fd77::2")
			}
			return netip.AddrFrom4([4]byte{10, 77, 0, 1 + ip.As4()[3]})
		},
		Left: r.settleAll,
	}
	proxytest.Separate(r.Apart)
	return r
}

func (r *rig) configure(cfg *proxy.Config) {
	cfg.Kernel = true
	if cfg.BindAddress.IsLoopback() {
		cfg.BindAddress = r.Node(cfg.BindAddress)
	}
	cfg.ProxyProtocolFrom = slices.Clone(cfg.ProxyProtocolFrom)
	for i, p := range cfg.ProxyProtocolFrom { // other proxies are where the clients are
		cfg.ProxyProtocolFrom[i] = netip.PrefixFrom(r.Remote(p.Addr()), p.Bits())
	}
	cfg.Checks = checks.Settings{Interval: 10 * time.Millisecond, Rise: 1, Fall: 1}
}

var errGone = errors.New("there is no endpoint")

func (r *rig) starts(n *node) {
	c := &checkedNode{node: n, asked: make(map[checks.Key]int)}
	n.balancer.Checker.Ask = func(k *checks.Key) error {
		c.batch.Lock()
		defer c.batch.Unlock()
		c.mu.Lock()
		c.asked[*k]++
		c.mu.Unlock()
		if k.Addr.Host == "" && !r.Answers(k.Question.Protocol, k.Addr.IP) {
			return errGone
		}
		return nil
	}
	r.mu.Lock()
	r.nodes = append(r.nodes, c)
	r.mu.Unlock()
}

func (r *rig) complete(n *node, batch *registry.Batch) {
	c := r.checked(n)
	for _, e := range batch.Endpoints {
		if e != nil {
			for _, p := range e.ByPort {
				for addr := range p.Addrs.All() {
					c.names = c.names || addr.Host != ""
				}
			}
		}
	}
	c.batch.Lock()
	for name, s := range batch.Services {
		if s != nil && s.Terms().Checks.Wanted == registry.CheckUnsaid {
			checked, terms := *s, *s.Terms()
			terms.Checks = registry.Check{Wanted: registry.CheckOn, Send: "?"}
			checked.SetTerms(terms)
			batch.Services[name] = &checked
		}
	}
}

func (r *rig) settle(n *node) {
	c := r.checked(n)
	unknown := n.balancer.Checker.Counts().Unknown
	c.batch.Unlock()
	if unknown > 0 { // else the batch has been applied with what is known
		c.settle()
	}
}

func (r *rig) checked(n *node) *checkedNode {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.nodes[slices.IndexFunc(r.nodes, func(c *checkedNode) bool { return c.node == n })]
}

// settleAll is called when an endpoint has gone.
func (r *rig) settleAll() {
	r.mu.Lock()
	nodes := slices.Clone(r.nodes)
	r.mu.Unlock()
	for _, c := range nodes {
		if !isClosed(c.stopped) {
			c.settle()
		}
	}
}

// settle waits until each target was asked twice: what the first answer was is known to the balancer then. The kernel follows with a batch.
func (c *checkedNode) settle() {
	c.mu.Lock()
	clear(c.asked)
	c.mu.Unlock()
	patience := proxytest.Patience
	if c.names {
		patience = 2 * time.Second
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline) && !isClosed(c.stopped); time.Sleep(2 * time.Millisecond) {
		twice := 0
		c.mu.Lock()
		for _, times := range c.asked {
			if times >= 2 {
				twice++
			}
		}
		c.mu.Unlock()
		if twice >= c.balancer.Checker.Counts().Targets {
			break
		}
	}
	proxytest.Becomes(func() bool { // the kernel path has begun, or it never will
		return isClosed(c.stopped) || c.KernelStatus().Complaint() != "" || !slices.ContainsFunc(c.Status(), func(s proxy.PortStatus) bool { return s.Kernel == kernel.Off })
	})
	c.OnUpdate(registry.Batch{Oldest: time.Now()})
}

// forwarded counts the packets that the node has forwarded: nothing but the kernel path forwards any.
func forwarded(t *testing.T) (n uint64) {
	t.Helper()
	for path, field := range map[string]string{"/proc/thread-self/net/snmp": "", "/proc/thread-self/net/snmp6": "Ip6OutForwDatagrams"} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var m uint64
		if field == "" {
			lines := strings.Split(string(text), "\n")
			i := slices.Index(strings.Fields(lines[0]), "ForwDatagrams")
			_, err = fmt.Sscan(strings.Fields(lines[1])[i], &m)
		} else if _, rest, ok := strings.Cut(string(text), field); ok {
			_, err = fmt.Sscan(rest, &m)
		}
		if err != nil {
			t.Fatal(err)
		}
		n += m
	}
	return n
}

var wholeSuite = flag.Bool("kernel.suite", false, "run the whole suite through the kernel, and not only some of it")

const shards = 6

// inShort are the tests that run without the flag.
var inShort = []string{
	"TestHalfCloseByTheClientKeepsTheAnswerFlowing", "TestHalfCloseByTheEndpointKeepsTheUploadFlowing", "TestBothDirectionsFlowAtOnce",
	"TestAServerThatSpeaksFirstIsHeard", "TestAClientThatFinishesFirstGetsItsAnswer", "TestAResetByTheEndpointReachesTheClientAsAReset",
	"TestDataBeforeAResetArrivesFirst", "TestEstablishedConnectionsOutliveTheirRecords", "TestDatagramsOfEverySizePassWhole",
	"TestOneClientHasASessionWithEachService", "TestAServiceWithoutEndpointsTurnsClientsAwayAtOnce",
}

// An outcome is the result of a test that ran through the kernel.
type outcome struct {
	passed, skipped bool
	packets         uint64 // that the kernel forwarded
}

func (o outcome) String() string {
	return fmt.Sprintf("passed %v, skipped %v, %d packets in the kernel", o.passed, o.skipped, o.packets)
}

func TestTheSuiteHoldsThroughTheKernel(t *testing.T) {
	if !*wholeSuite {
		t.Run("some", func(t *testing.T) { throughTheKernel(t, inShort) })
		return
	}
	var all [shards][]string
	for i, name := range suiteTests() {
		all[i%shards] = append(all[i%shards], name)
	}
	for i, names := range all {
		t.Run(fmt.Sprint("part ", i+1), func(t *testing.T) {
			if !proxytest.Inside(t) {
				t.Parallel()
			}
			throughTheKernel(t, names)
		})
	}
}

// throughTheKernel runs tests of the suite in a process and a network of their own, and compares what becomes of them with what is to.
func throughTheKernel(t *testing.T, names []string) {
	if proxytest.Inside(t) {
		onAWire(t, func(w *wire) { runWired(t, w, names) })
		return
	}
	reports, output := proxytest.Outcome(t)
	failed := t.Failed()
	for _, name := range names {
		var got outcome
		i := slices.IndexFunc(reports, func(r string) bool { return strings.HasPrefix(r, name+" ") })
		exception, excepted := exceptions[name]
		switch {
		case excepted && exception.way == notRun:
			continue
		case i < 0:
			t.Errorf("%s has not ended", name)
			continue
		}
		if _, err := fmt.Sscan(reports[i], new(string), &got.passed, &got.skipped, &got.packets); err != nil {
			t.Fatalf("%q: %v", reports[i], err)
		}
		switch {
		case !excepted && !(got.passed && !got.skipped && got.packets > 0):
			t.Errorf("%s: %s; want it to pass through the kernel", name, got)
		case excepted && !exception.way.agrees(got):
			t.Errorf("%s: %s; it is an exception no more, or another one than %q", name, got, exception.why)
		}
	}
	if t.Failed() != failed {
		t.Logf("all that was said:\n%s", output)
	}
}

// runWired runs tests one after the other, and reports on each.
func runWired(t *testing.T, w *wire, names []string) {
	r := w.separate()
	wired = r
	s := reflect.ValueOf(suite{proxy.Epoll})
	patience := proxytest.Patience
	for _, name := range names {
		exception := exceptions[name]
		if exception.way == notRun {
			continue
		}
		if proxytest.Patience = patience; exception.way == differs {
			proxytest.Patience = time.Second
		}
		before, skipped := forwarded(t), false
		passed := t.Run(name, func(t *testing.T) {
			defer func() { skipped = t.Skipped() }()
			s.MethodByName(name).Interface().(func(*testing.T))(t)
		})
		r.nodes = nil
		proxytest.Report("%s %v %v %d", name, passed, skipped, forwarded(t)-before)
	}
}

// suiteTests lists the tests of the suite.
func suiteTests() (names []string) {
	for m := range reflect.TypeFor[suite]().Methods() {
		names = append(names, m.Name)
	}
	return names
}

func TestEachExceptionOfTheKernelIsATestOfTheSuite(t *testing.T) {
	all := suiteTests()
	for _, name := range slices.Concat(slices.Collect(maps.Keys(exceptions)), inShort) {
		if !slices.Contains(all, name) {
			t.Errorf("%s is no test of the suite", name)
		}
	}
	for name, e := range exceptions {
		if e.why == "" || slices.Contains(inShort, name) {
			t.Errorf("%s: no reason, or it is to run without exception", name)
		}
	}
}
