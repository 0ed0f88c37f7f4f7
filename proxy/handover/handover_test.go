package handover

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/internal/takeover"
	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

var (
	web      = registry.PortKey{Name: registry.Name{Namespace: "prod", Name: "web"}, Port: "http"}
	byIP     = registry.Addr{IP: netip.MustParseAddrPort("10.1.2.3:8080")}
	byName   = registry.Addr{IP: netip.AddrPortFrom(netip.Addr{}, 53), Host: "ns.example"}
	someone  = netip.MustParseAddrPort("10.0.0.9:51544")
	linkOnly = netip.MustParseAddrPort("[fe80::1%eth0]:53")

	compareAddrs = cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	comparePorts = cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })
)

var progress = Progress{
	Sent: 10, Received: 1 << 50, ToBackend: []byte("question"), ToClient: []byte("answer"),
	End: Teardown{
		Client: SideEnd{Finished: true, FIN: true, SawEPIPE: true, Doubtful: true}, Backend: SideEnd{Finished: true, Broken: true},
		Reason: "client_reset", Flushing: true, Delivered: 77, TimeLeft: time.Minute, Timed: true,
	},
	Header: 8, Stays: true,
}

var talk = Talk{
	Silent: time.Second, Sent: 3, Received: 4, Answered: true, Confirmed: true, Unanswered: true, Kept: true, Last: []byte("second"),
	Requests: 5, Replies: 6, Lost: 7,
}

// messages returns one of each kind, with each of its fields set.
func messages() []Message {
	return []Message{
		&Greeting{Version: Version, Live: true},
		&Listener{ID: registry.ListenerID{Protocol: registry.UDP, Number: 53}, Bind: netip.IPv4Unspecified(), Open: true, Claims: []registry.PortKey{web, {Name: registry.Name{Name: "other"}}}},
		&Listener{ID: registry.ListenerID{Addr: netip.MustParseAddr("127.0.0.2"), Number: 53}, Bind: netip.MustParseAddr("127.0.0.2"), Open: true, Claims: []registry.PortKey{web}, Kept: true},
		&Listener{ID: registry.ListenerID{Number: 54}, Bind: netip.IPv4Unspecified(), Claims: []registry.PortKey{web}, Held: true},
		&UDPPort{Number: 53, Lost: 1<<32 - 1},
		&Rotation{Service: web, Next: []registry.Addr{byIP, byName}, Endpoints: []Endpoint{{Addr: byName, Health: [2]Health{
			{Failing: true, Returns: -time.Second, ConsecutiveFailures: 3, HalfOpen: true, Aside: time.Minute, Unusable: "name_failed",
				Warms: time.Second, Warmed: 2 * time.Second, FailingFor: time.Hour}, {},
		}, Checks: [2]Check{{}, {Known: true, Fails: true, For: time.Hour, Err: "no answer in time", Run: 1}}}}, Asked: [2]Asked{{Question: 1 << 63, Passed: 3}, {}}},
		&Affinities{Service: web, Protocol: registry.UDP, Clients: []Affinity{{Client: someone.Addr(), Endpoint: byIP, Age: time.Hour, Timeout: 3 * time.Hour}}},
		&TCP{
			Service: web, Port: 80, Client: someone, Endpoint: byIP, Age: time.Hour, Dialled: time.Millisecond, Attempts: 2, Progress: progress,
			Via: linkOnly, Goal: someone, TLVs: "alpn=h2", Introduced: 28, EndpointGone: time.Minute, ServiceGone: time.Hour, Lent: 1<<32 + 1,
		},
		&Rest{Lent: 1<<32 + 1, Progress: progress},
		&UDP{
			Service: web, Port: 53, Client: linkOnly, Local: sockopt.LocalAddr{Addr: netip.MustParseAddr("fe80::2"), Interface: 3}, Endpoint: byIP, Previous: byName,
			Visit: Visit{IsOn: true, Age: time.Second, Answered: true, Refused: true}, Age: time.Minute, Dialled: 1,
			Attempts: 2, Waiting: [][]byte{[]byte("first"), {}, []byte("second")}, Talk: talk, Lent: 1<<32 + 1, Searching: time.Second, SaysHeader: true, Header: []byte("header"),
		},
		&UDPRest{Lent: 1<<32 + 1, Answered: true, Refused: true, Talk: talk},
	}
}

// itemOf encodes a message, with as many descriptors as it has.
func itemOf(r Message) takeover.Item { return Encode(r, make([]int, r.descriptors())...) }

func compare(want, got Message) string {
	return cmp.Diff(want, got, compareAddrs, comparePorts, cmp.Transformer("empty", func(b []byte) string { return string(b) }))
}

func TestAMessageComesBackAsItWas(t *testing.T) {
	for _, want := range messages() {
		got, err := Decode(itemOf(want))
		if err != nil {
			t.Errorf("%T: %v", want, err)
		} else if diff := compare(want, got); diff != "" {
			t.Errorf("%T came back otherwise (-want +got):\n%s", want, diff)
		}
	}
}

func TestFieldsOfALaterReleaseAreIgnored(t *testing.T) {
	for _, want := range messages() {
		item := itemOf(want)
		item.Body = append(item.Body, 17, 'l', 'a', 't', 'e', 'r')
		got, err := Decode(item)
		if err != nil {
			t.Errorf("%T: %v", want, err)
		} else if diff := compare(want, got); diff != "" {
			t.Errorf("%T came back otherwise (-want +got):\n%s", want, diff)
		}
	}
}

func TestFieldsThatAnEarlierReleaseDidNotWriteAreZero(t *testing.T) {
	tcp := &TCP{Service: web, Port: 80, Client: someone, Endpoint: byIP, Age: time.Hour, Dialled: time.Millisecond, Attempts: 2, Progress: Progress{Sent: 10}}
	c := codec{b: Encode(tcp).Body, decodes: true}
	whole := len(c.b)
	short := new(TCP) // the fields up to Sent
	c.portKey(&short.Service)
	c.uint16(&short.Port)
	c.addrPort(&short.Client)
	c.endpoint(&short.Endpoint)
	c.duration(&short.Age)
	c.duration(&short.Dialled)
	c.uint(&short.Attempts)
	c.uint(&short.Sent)
	got, err := Decode(takeover.Item{Kind: kindTCP, Body: Encode(tcp).Body[:whole-len(c.b)], Descriptors: make([]int, 2)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := compare(tcp, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatNoPredecessorWritesIsAnError(t *testing.T) {
	for _, c := range []struct {
		name string
		item takeover.Item
		want string
	}{
		{"kind", takeover.Item{Kind: 4711}, "unknown kind 4711"},
		{"empty", takeover.Item{Kind: kindTCP, Descriptors: []int{1}}, "no service"},
		{"number without end", takeover.Item{Kind: kindUDPPort, Body: []byte{0x80}}, "cut off"},
		{"text without end", takeover.Item{Kind: kindRotation, Body: []byte{9, 'x'}}, "cut off"},
		{"list without end", takeover.Item{Kind: kindRotation, Body: []byte{0, 1, 'x', 0, 200, 1}}, "cut off"},
		{"port", takeover.Item{Kind: kindUDPPort, Body: []byte{0xff, 0xff, 0x7f, 0}}, "out of range"},
		{"no port", Encode(&UDPPort{}), "no port"},
		{"no version", Encode(&Greeting{}), "no version"},
		{"no owner", Encode(&Listener{ID: registry.ListenerID{Number: 1}, Bind: netip.IPv4Unspecified()}), "no owner"},
		{"no client", Encode(&UDP{Service: web, Port: 1}), "no client"},
		{"a long header", Encode(&UDP{Service: web, Port: 1, Client: someone, Header: make([]byte, 1000)}), "header of more than"},
		{"negative age", Encode(&UDP{Service: web, Port: 1, Client: someone, Age: -1}), "negative"},
		{"too many unsent", Encode(&TCP{Service: web, Port: 1, Client: someone, Progress: Progress{ToBackend: make([]byte, MaxUnsent+1)}}, 1), "unsent"},
		{"answer of nobody", Encode(&TCP{Service: web, Port: 1, Client: someone, Progress: Progress{ToClient: []byte("x")}}, 1), "no endpoint"},
		{"lent without an endpoint", Encode(&TCP{Service: web, Port: 1, Client: someone, Lent: 1}, 1), "no endpoint"},
		{"the rest of nothing", Encode(&Rest{}), "no connection"},
		{"too much of the rest", Encode(&Rest{Lent: 1, Progress: Progress{ToClient: make([]byte, MaxUnsent+1)}}), "unsent"},
		{"socket to nobody", Encode(&UDP{Service: web, Port: 1, Client: someone, Visit: Visit{IsOn: true}}, 1), "no endpoint"},
		{"too few descriptors", Encode(&TCP{Service: web, Port: 1, Client: someone}), "0 descriptors; want 1"},
		{"too many descriptors", Encode(&UDPPort{Number: 1}, 3), "1 descriptors; want 0"},
		{"address of three bytes", takeover.Item{Kind: kindListener, Body: []byte{0, 80, 3, 1, 2, 3, 0, 0, 0}}, "no IP address"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if r, err := Decode(c.item); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %+v, %v; want an error that says %q", r, err, c.want)
			}
		})
	}
}

// FuzzDecode: whatever a predecessor sends is an error or a message, and a message is the same when it is written and read again.
func FuzzDecode(f *testing.F) {
	for _, r := range messages() {
		item := itemOf(r)
		f.Add(item.Kind, item.Body, len(item.Descriptors))
	}
	f.Fuzz(func(t *testing.T, kind uint16, body []byte, descriptors int) {
		first, err := Decode(takeover.Item{Kind: kind, Body: body, Descriptors: make([]int, min(max(descriptors, 0), 4))})
		if err != nil {
			return
		}
		second, err := Decode(Encode(first, make([]int, min(max(descriptors, 0), 4))...))
		if err != nil {
			t.Fatalf("%+v was read, but cannot be read again: %v", first, err)
		}
		if diff := compare(first, second); diff != "" {
			t.Errorf("a message changed when it was read again (-first +second):\n%s", diff)
		}
	})
}

// BenchmarkConnections is the cost of all messages of 4,000 connections, written and read.
func BenchmarkConnections(b *testing.B) {
	r := &TCP{Service: web, Port: 80, Client: someone, Endpoint: byIP, Age: time.Hour, Dialled: time.Millisecond, Attempts: 1, Progress: Progress{Sent: 1 << 30, Received: 1 << 40}}
	b.ReportAllocs()
	for b.Loop() {
		for range 4000 {
			if _, err := Decode(Encode(r, 3, 4)); err != nil {
				b.Fatal(err)
			}
		}
	}
}
