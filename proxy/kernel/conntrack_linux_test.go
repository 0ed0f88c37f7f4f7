package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// Of the uapi of the kernel (nfnetlink_conntrack.h), for tests alone.
const (
	ctNew     = unix.NFNL_SUBSYS_CTNETLINK << 8
	ctTimeout = 7
	ctNATDst  = 13

	natIPv4, natIPv6, natProto = 1, 4, 3
	natPort                    = 1
)

// A tracked connection is one that a test puts into the connection table.
type tracked struct {
	protocol                 byte
	client, target, endpoint string
}

func (c tracked) String() string {
	return fmt.Sprintf("%d %s > %s", c.protocol, c.target, c.endpoint)
}

// track puts a connection into the table. by: destination NAT sends it to the endpoint; otherwise replies come from there for no reason.
func track(t *testing.T, conn *netlink.Conn, c tracked, byNAT bool) {
	t.Helper()
	client, target, endpoint := netip.MustParseAddrPort(c.client), netip.MustParseAddrPort(c.target), netip.MustParseAddrPort(c.endpoint)
	family, source, destination, nat := byte(unix.NFPROTO_IPV4), uint16(ctIPv4Source), uint16(ctIPv4Dst), uint16(natIPv4)
	if target.Addr().Is6() {
		family, source, destination, nat = unix.NFPROTO_IPV6, ctIPv6Source, ctIPv6Dst, natIPv6
	}
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	tuple := func(direction uint16, from, to netip.AddrPort) {
		e.Nested(direction, func(tuple *netlink.AttributeEncoder) error {
			tuple.Nested(ctTupleIP, func(ip *netlink.AttributeEncoder) error {
				ip.Bytes(source, from.Addr().AsSlice())
				ip.Bytes(destination, to.Addr().AsSlice())
				return nil
			})
			tuple.Nested(ctTupleProto, func(p *netlink.AttributeEncoder) error {
				p.Uint8(ctProtoNum, c.protocol)
				p.Uint16(ctProtoSource, from.Port())
				p.Uint16(ctProtoDst, to.Port())
				return nil
			})
			return nil
		})
	}
	tuple(ctTupleOrig, client, target)
	if byNAT {
		tuple(ctTupleReply, target, client) // which the kernel changes
		e.Nested(ctNATDst, func(to *netlink.AttributeEncoder) error {
			to.Bytes(nat, endpoint.Addr().AsSlice())
			to.Nested(natProto, func(p *netlink.AttributeEncoder) error {
				p.Uint16(natPort, endpoint.Port())
				return nil
			})
			return nil
		})
	} else {
		tuple(ctTupleReply, endpoint, client)
	}
	e.Uint32(ctTimeout, 600)
	attributes, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Execute(message(ctNew, netlink.Create|netlink.Excl|netlink.Acknowledge, family, 0, attributes)); err != nil {
		t.Fatalf("%v: %v", c, err)
	}
}

// everyEntry lists the connection table.
func everyEntry(t *testing.T) (all []string) {
	t.Helper()
	if err := dump(unix.AF_UNSPEC, nil, func(e *entry) {
		all = append(all, tracked{e.protocol, "", e.target.String(), e.endpoint.String()}.String())
	}); err != nil {
		t.Fatal(err)
	}
	slices.Sort(all)
	return all
}

// trackingConn is for messages to the connection table of the test's own network.
func trackingConn(t *testing.T) *netlink.Conn {
	t.Helper()
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func TestTheUDPFlowsOfAPortToAnEndpointAreDeletedAndNoOthers(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	conn := trackingConn(t)
	const tcp, udp = unix.IPPROTO_TCP, unix.IPPROTO_UDP
	connections := []tracked{
		{udp, "10.2.0.1:1000", "10.0.0.9:53", "10.1.0.1:5353"},
		{udp, "10.2.0.1:1001", "10.0.0.9:53", "10.1.0.1:5353"},
		{udp, "10.2.0.2:1000", "10.0.0.10:53", "10.1.0.1:5353"},
		{udp, "10.2.0.3:1000", "10.0.0.9:54", "10.1.0.1:5353"},
		{udp, "10.2.0.2:1000", "10.0.0.9:53", "10.1.0.2:5353"},
		{udp, "10.2.0.3:1000", "10.0.0.9:53", "10.1.0.1:53"},
		{tcp, "10.2.0.1:1000", "10.0.0.9:53", "10.1.0.1:5353"},
		{udp, "[fd02::1]:1000", "[fd00::9]:53", "[fd01::1]:5353"},
		{udp, "[fd02::2]:1000", "[fd00::9]:53", "[fd01::2]:5353"},
		{udp, "[fd02::3]:1000", "[fd00::10]:53", "[fd01::1]:5353"},
	}
	each := func(id registry.ListenerID, endpoint netip.AddrPort) error {
		family, filter, err := filterFlows(flow{id, endpoint})
		return cmp.Or(err, deleteEach(conn, flow{id, endpoint}, family, filter))
	}
	for _, c := range []struct {
		id       registry.ListenerID
		endpoint string
		deleted  []int // of connections
	}{
		{dns, "10.1.0.1:5353", []int{0, 1, 2}},
		{at("10.0.0.9", dns), "10.1.0.1:5353", []int{0, 1}},
		{at("10.0.0.10", dns), "10.1.0.1:5353", []int{2}},
		{dns, "[fd01::1]:5353", []int{7, 9}},
		{at("fd00::9", dns), "[fd01::1]:5353", []int{7}},
		{at("fd00::9", dns), "[fd01::2]:5353", []int{8}},
		{dns, "10.1.0.3:5353", nil},
	} {
		for way, remove := range map[string]func(registry.ListenerID, netip.AddrPort) error{"as this kernel can": deleteFlows, "one by one": each} {
			if _, err := conn.Execute(message(ctDelete, netlink.Acknowledge, unix.AF_UNSPEC, 0, nil)); err != nil { // all
				t.Fatal(err)
			}
			var want []string
			for i, connection := range connections {
				track(t, conn, connection, false)
				if !slices.Contains(c.deleted, i) {
					want = append(want, connection.String())
				}
			}
			slices.Sort(want)
			if err := remove(c.id, netip.MustParseAddrPort(c.endpoint)); err != nil {
				t.Errorf("%s, %s to %s: %v", way, c.id, c.endpoint, err)
			}
			if got := everyEntry(t); !slices.Equal(got, want) {
				t.Errorf("%s, %s to %s: there are %q; want %q", way, c.id, c.endpoint, got, want)
			}
		}
	}
}

// An oldKernel refuses to delete by a filter.
type oldKernel struct {
	*netlink.Conn
	says    syscall.Errno
	refused *netlink.Message
}

func (k *oldKernel) Send(m netlink.Message) error {
	attributes, err := netlink.UnmarshalAttributes(m.Data[4:])
	if slices.ContainsFunc(attributes, func(a netlink.Attribute) bool { return a.Type&typeMask == ctFilter }) {
		k.refused = &m
		return err
	}
	_, err = k.Conn.Send(m)
	return err
}

func (k *oldKernel) SendMessages([]netlink.Message) error { return errors.ErrUnsupported }

func (k *oldKernel) Receive() ([]netlink.Message, error) {
	m := k.refused
	if m == nil {
		return k.Conn.Receive()
	}
	k.refused = nil
	header := netlink.Header{Type: netlink.Error, Sequence: m.Header.Sequence, PID: m.Header.PID}
	return []netlink.Message{{Header: header, Data: native(uint32(-int32(k.says)))}}, nil
}

func TestAKernelThatDeletesByNoFilterIsGivenFlowsOneByOne(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	conn := trackingConn(t)
	is := tracked{unix.IPPROTO_UDP, "10.2.0.1:1000", "10.0.0.9:53", "10.1.0.1:5353"}
	of := flow{dns, netip.MustParseAddrPort("10.1.0.1:5353")}
	for _, says := range []syscall.Errno{syscall.EINVAL, syscall.EOPNOTSUPP} { // to a message with a tuple, and without one
		track(t, conn, is, false)
		if err := deleteBy(netlink.NewConn(&oldKernel{Conn: conn, says: says}, 0), of); err != nil || len(everyEntry(t)) != 0 {
			t.Errorf("to a kernel that says %v: %v, and there are %q", says, err, everyEntry(t))
		}
	}
	track(t, conn, is, false)
	if err := deleteBy(netlink.NewConn(&oldKernel{Conn: conn, says: syscall.EPERM}, 0), of); !errors.Is(err, syscall.EPERM) || len(everyEntry(t)) != 1 {
		t.Errorf("to a kernel that forbids it: %v, and there are %q", err, everyEntry(t))
	}
}

// What kernels list that do not know a filter is more than is to be deleted.
func TestWhatIsListedBesideTheFlowsIsNotDeleted(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	conn := trackingConn(t)
	kept := tracked{unix.IPPROTO_UDP, "10.2.0.1:1000", "10.0.0.9:53", "10.1.0.2:5353"}
	track(t, conn, kept, false)
	track(t, conn, tracked{unix.IPPROTO_UDP, "10.2.0.1:1001", "10.0.0.9:53", "10.1.0.1:5353"}, false)
	if err := deleteEach(conn, flow{dns, netip.MustParseAddrPort("10.1.0.1:5353")}, unix.NFPROTO_IPV4, nil); err != nil {
		t.Error(err)
	}
	if got := everyEntry(t); !slices.Equal(got, []string{kept.String()}) {
		t.Errorf("there are %q; want %q", got, kept)
	}
}

func TestUDPFlowsThatRulesHaveSentElsewhereAreListedOnce(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	newTable(t) // or there is no NAT
	conn := trackingConn(t)
	const tcp, udp = unix.IPPROTO_TCP, unix.IPPROTO_UDP
	track(t, conn, tracked{udp, "10.2.0.1:1000", "10.0.0.9:53", "10.1.0.1:5353"}, true)
	track(t, conn, tracked{udp, "10.2.0.1:1001", "10.0.0.9:53", "10.1.0.1:5353"}, true)
	track(t, conn, tracked{udp, "10.2.0.2:1000", "10.0.0.10:53", "10.1.0.1:5353"}, true)
	track(t, conn, tracked{udp, "[fd02::1]:1000", "[fd00::9]:53", "[fd01::1]:5353"}, true)
	track(t, conn, tracked{tcp, "10.2.0.1:1000", "10.0.0.9:54", "10.1.0.1:5353"}, true)
	track(t, conn, tracked{udp, "10.2.0.1:1000", "10.0.0.9:55", "10.0.0.9:55"}, false) // userspace's
	got, err := listFlows()
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b flow) int { return a.id.Compare(b.id) })
	want := []flow{to("10.0.0.9:53", "10.1.0.1:5353"), to("10.0.0.10:53", "10.1.0.1:5353"), to("[fd00::9]:53", "[fd01::1]:5353")}
	if !slices.Equal(got, want) {
		t.Errorf("got %v; want %v", got, want)
	}
	for _, e := range []entry{{protocol: udp}, {protocol: udp, status: ^uint32(ctStatusDNAT)}, {protocol: tcp, status: ctStatusDNAT}} { // of old kernels
		if e.isSentElsewhere() {
			t.Errorf("an entry of protocol %d and status %#x is taken for such a flow", e.protocol, e.status)
		}
	}
}

// A list of many takes more than one answer of the kernel.
func TestALongListOfConnectionsIsReadWhole(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	conn := trackingConn(t)
	const n = 2000
	for i := range n {
		client := netip.AddrPortFrom(netip.MustParseAddr("10.2.0.1"), uint16(1000+i))
		track(t, conn, tracked{unix.IPPROTO_UDP, client.String(), "10.0.0.9:53", "10.1.0.1:5353"}, false)
	}
	if got := len(everyEntry(t)); got != n {
		t.Errorf("%d are listed; want %d", got, n)
	}
	of := flow{dns, netip.MustParseAddrPort("10.1.0.1:5353")}
	family, filter, err := filterFlows(of)
	if err = cmp.Or(err, deleteEach(conn, of, family, filter)); err != nil {
		t.Error(err)
	}
	if got := len(everyEntry(t)); got != 0 {
		t.Errorf("%d are left", got)
	}
}

func TestAClientLeavesTheEndpointThatAnEarlierProcessGaveIt(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	const onInterface, ofRange, endpoint, table = "10.9.9.1:53", "10.96.0.10:53", "10.9.9.2:5353", "kube-proxy-1-0123abcd"
	answerWithTheirNames(t, onInterface, endpoint)
	proxytest.MustRun(t, "ip", "route", "add", "local", "10.96.0.0/12", "dev", "lo") // as -service_cidr has it
	answerWithItsName(t, ofRange)
	newTable(t) // or the kernel would translate no more when the table goes
	for _, listener := range []string{onInterface, ofRange} {
		leave(t, table, change{id: dns, after: addresses(endpoint)})
		client := aClientOf(t, listener)
		client.isAnsweredBy(endpoint)
		conn, err := nftables.New()
		if err != nil {
			t.Fatal(err)
		}
		conn.DelTable(&nftables.Table{Name: table, Family: nftables.TableFamilyINet})
		if err := conn.Flush(); err != nil {
			t.Fatal(err)
		}
		client.isAnsweredBy(endpoint)
		d := newDesk(t)
		d.node.IsLocal = admit.IsRoutedHere
		d.Carrier.flush, d.Carrier.list = deleteFlows, listFlows
		d.Claim(dns, &engine.Claim{Rotation: d.lb.Hold(registry.PortKey{}), Terms: registry.NoTerms})
		d.Apply()
		client.isAnsweredBy(listener)
	}
}
