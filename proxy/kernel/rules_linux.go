package kernel

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Registers of four bytes. A key or a value of a map is in consecutive ones.
const (
	reg0 = unix.NFT_REG32_00
	reg1 = unix.NFT_REG32_01
	reg2 = unix.NFT_REG32_02
	reg4 = unix.NFT_REG32_04
)

// What an address is stored as: its bytes, and where its source and destination are in the packet.
var addressing = [2]struct {
	protocol    byte // NFPROTO
	length      uint32
	source      uint32
	destination uint32
	addr        nftables.SetDatatype
}{
	{unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr},
	{unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr},
}

// Packets from and to these networks are the engine's. Those of the loopback are met only where they leave a program; what is
// link-local is not forwarded.
var (
	loopback  = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	linkLocal = []netip.Prefix{netip.MustParsePrefix("fe80::/10")}
)

// addRules creates what is constant in the table.
func (t *nftTable) addRules(bind netip.Addr) error {
	port := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)
	// The number is declared as a mark, which is four bytes: nft cannot list maps whose key contains an integer.
	number := nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService, nftables.TypeMark)
	t.carried = &nftables.Set{Table: t.nft, ID: 1, Name: "carried", Concatenation: true, KeyType: port}
	if err := t.conn.AddSet(t.carried, nil); err != nil {
		return err
	}
	for f, a := range addressing {
		suffix := [2]string{"4", "6"}[f]
		target := nftables.MustConcatSetType(a.addr, nftables.TypeInetService)
		t.families[f] = family{
			ports: &nftables.Set{Table: t.nft, ID: uint32(2 + f), Name: "ports" + suffix, IsMap: true, Concatenation: true, KeyType: port,
				DataType: nftables.TypeVerdict, Counter: true},
			endpoints: &nftables.Set{Table: t.nft, ID: uint32(4 + f), Name: "endpoints" + suffix, IsMap: true, Concatenation: true, KeyType: number,
				DataType: target},
			senders: &nftables.Set{Table: t.nft, ID: uint32(6 + f), Name: "senders" + suffix, Concatenation: true,
				KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService, a.addr, nftables.TypeInetService)},
			hosts: &nftables.Set{Table: t.nft, ID: uint32(8 + f), Name: "hosts" + suffix, Concatenation: true,
				KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService, a.addr)},
			chains: make(map[int]bool),
		}
		for _, set := range []*nftables.Set{t.families[f].ports, t.families[f].endpoints, t.families[f].senders, t.families[f].hosts} {
			if err := t.conn.AddSet(set, nil); err != nil {
				return err
			}
		}
	}
	base := func(name string, hook *nftables.ChainHook, priority *nftables.ChainPriority) *nftables.Chain {
		return t.conn.AddChain(&nftables.Chain{Table: t.nft, Name: name, Type: nftables.ChainTypeNAT, Hooknum: hook, Priority: priority})
	}
	t.addSenders()
	t.addLookUps(base("prerouting", nftables.ChainHookPrerouting, nftables.ChainPriorityNATDest), bind, linkLocal)
	t.addLookUps(base("output", nftables.ChainHookOutput, nftables.ChainPriorityNATDest), bind, append(loopback, linkLocal...))
	postrouting := base("postrouting", nftables.ChainHookPostrouting, nftables.ChainPriorityNATSource)
	t.exceptFromMasquerade(postrouting)
	if err := t.conn.Flush(); err != nil {
		return err
	}
	return createMasquerade(t.raw, t.nft.Name, postrouting.Name, t.carried)
}

func (t *nftTable) addRule(c *nftables.Chain, exprs ...expr.Any) {
	t.conn.AddRule(&nftables.Rule{Table: t.nft, Chain: c, Exprs: exprs})
}

// addLookUps adds the rules that look for ports, each family's after those for its networks whose packets are left alone, and all after that for
// UDP clients that are left alone.
func (t *nftTable) addLookUps(c *nftables.Chain, bind netip.Addr, except []netip.Prefix) {
	t.addRule(c, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg0}, is([]byte{unix.IPPROTO_UDP}), &expr.Verdict{Kind: expr.VerdictJump, Chain: sendersChain})
	t.addRule(c, goesOn()...)
	for f := range t.families {
		if !bind.IsUnspecified() && bind.Is4() != (f == 0) {
			continue
		}
		for _, network := range except {
			if network.Addr().Is4() == (f == 0) {
				t.addRule(c, append(within(network, true), &expr.Verdict{Kind: expr.VerdictReturn})...)
				t.addRule(c, append(within(network, false), &expr.Verdict{Kind: expr.VerdictReturn})...)
			}
		}
		t.addRule(c, t.lookUp(f, bind)...)
	}
}

// goesOn leaves a packet alone that is not the first of a TCP connection. Where the kernel tracked no connections when a client came to userspace, it
// takes a later packet of that client for the first of a new connection (nf_conntrack_tcp_loose), which would be sent to an endpoint that knows nothing of it.
func goesOn() []expr.Any {
	const fin, syn, rst, ack = 1 << 0, 1 << 1, 1 << 2, 1 << 4
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg0}, is([]byte{unix.IPPROTO_TCP}),
		&expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1, DestRegister: reg0},
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg0, Data: []byte{syn}},
		&expr.Verdict{Kind: expr.VerdictReturn}}
}

// sendersChain is the chain of the rules for UDP clients that are left alone. It is a chain of its own so that a connection over TCP passes one rule only.
const sendersChain = "senders"

// addSenders adds the chain that leaves the UDP clients in sets to the listener, which gives them no endpoint that would send their datagrams back.
func (t *nftTable) addSenders() {
	c := t.conn.AddChain(&nftables.Chain{Table: t.nft, Name: sendersChain})
	for f := range t.families {
		for _, set := range []*nftables.Set{t.families[f].senders, t.families[f].hosts} {
			t.addRule(c, fromOneOf(f, set)...)
		}
	}
}

// fromOneOf accepts a datagram of a client in a set, so that no rule of ours translates it.
func fromOneOf(f int, senders *nftables.Set) []expr.Any {
	return append(append(ofFamily(f), loadPort()...),
		&expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseNetworkHeader, Offset: addressing[f].source, Len: addressing[f].length, DestRegister: reg2},
		&expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2, DestRegister: reg2 + addressing[f].length/4},
		&expr.Lookup{SourceRegister: reg0, SetName: senders.Name, SetID: senders.ID},
		&expr.Verdict{Kind: expr.VerdictAccept})
}

// lookUp sends packets to a local address into the chain that the map of ports names.
func (t *nftTable) lookUp(f int, bind netip.Addr) []expr.Any {
	rule := ofFamily(f)
	if !bind.IsUnspecified() {
		rule = append(rule, loadAddress(f, addressing[f].destination), is(bind.AsSlice()))
	}
	rule = append(rule,
		&expr.Fib{Register: reg0, FlagDADDR: true, ResultADDRTYPE: true}, // to an address of this node
		is([]byte{unix.RTN_LOCAL, 0, 0, 0}))
	ports := t.families[f].ports
	return append(append(rule, loadPort()...), &expr.Lookup{SourceRegister: reg0, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: ports.Name, SetID: ports.ID})
}

// addChoice adds the chain that sends a connection to one of n endpoints. A connection that finds no endpoint, since the port has fewer
// now, goes to the listener.
func (t *nftTable) addChoice(name string, f, n int) {
	endpoints := t.families[f].endpoints
	t.addRule(t.conn.AddChain(&nftables.Chain{Table: t.nft, Name: name}), append(loadPort(),
		&expr.Numgen{Register: reg2, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: reg0, DestRegister: reg4, IsDestRegSet: true, SetName: endpoints.Name, SetID: endpoints.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(addressing[f].protocol), RegAddrMin: reg4, RegProtoMin: reg4 + addressing[f].length/4, Specified: true},
	)...)
}

// Of the uapi of the kernel (nf_conntrack_common.h).
const ctStatusDNAT = 1 << 5

// loopbackIndex is the index of the loopback interface, in every network namespace.
const loopbackIndex = 1

// exceptFromMasquerade lets go what is not masqueraded: connections of others, and those whose endpoint is on the node.
func (t *nftTable) exceptFromMasquerade(c *nftables.Chain) {
	t.addRule(c,
		&expr.Ct{Key: expr.CtKeySTATUS, Register: reg0},
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: 4, Mask: native(ctStatusDNAT), Xor: native(0)},
		is(native(0)), &expr.Verdict{Kind: expr.VerdictReturn})
	t.addRule(c,
		&expr.Meta{Key: expr.MetaKeyOIF, Register: reg0}, is(native(loopbackIndex)), &expr.Verdict{Kind: expr.VerdictReturn})
}

// createMasquerade adds the rule that masquerades connections whose original destination is in a set of ports. Package nftables gives
// the direction of such an expression four bytes, and each use of it makes the kernel log a warning: it is one.
func createMasquerade(conn *netlink.Conn, table, chain string, carried *nftables.Set) error {
	direction := netlink.NewAttributeEncoder()
	direction.ByteOrder = binary.BigEndian
	direction.Bytes(unix.NFTA_EXPR_NAME, name("ct"))
	direction.Nested(unix.NFTA_EXPR_DATA, func(ct *netlink.AttributeEncoder) error {
		ct.Uint32(unix.NFTA_CT_DREG, reg1)
		ct.Uint32(unix.NFTA_CT_KEY, unix.NFT_CT_PROTO_DST)
		ct.Uint8(unix.NFTA_CT_DIRECTION, 0)
		return nil
	})
	original, err := direction.Encode()
	rule := make([][]byte, 0, 4)
	for _, e := range []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg0},
		nil,
		&expr.Lookup{SourceRegister: reg0, SetName: carried.Name, SetID: carried.ID},
		&expr.Masq{},
	} {
		encoded := original
		if e != nil && err == nil {
			encoded, err = expr.Marshal(unix.NFPROTO_INET, e)
		}
		rule = append(rule, encoded)
	}
	if err != nil {
		return err
	}
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.NFTA_RULE_TABLE, name(table))
	e.Bytes(unix.NFTA_RULE_CHAIN, name(chain))
	e.Nested(unix.NFTA_RULE_EXPRESSIONS, func(list *netlink.AttributeEncoder) error {
		for _, encoded := range rule {
			list.Bytes(unix.NLA_F_NESTED|unix.NFTA_LIST_ELEM, encoded)
		}
		return nil
	})
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	return transact(conn, nftMessage(unix.NFT_MSG_NEWRULE, netlink.Create|unix.NLM_F_APPEND, attributes))
}

// loadPort loads the key of a port.
func loadPort() []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg0},
		&expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: reg1},
	}
}

// within matches packets from a network, or to it.
func within(network netip.Prefix, from bool) []expr.Any {
	f := 0
	if network.Addr().Is6() {
		f = 1
	}
	a := addressing[f]
	offset := a.destination
	if from {
		offset = a.source
	}
	mask := make([]byte, a.length)
	for bit := range network.Bits() {
		mask[bit/8] |= 0x80 >> (bit % 8)
	}
	return append(ofFamily(f), loadAddress(f, offset),
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: a.length, Mask: mask, Xor: make([]byte, a.length)},
		is(network.Masked().Addr().AsSlice()))
}

func ofFamily(f int) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg0}, is([]byte{addressing[f].protocol})}
}

func loadAddress(f int, offset uint32) expr.Any {
	return &expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressing[f].length, DestRegister: reg0}
}

// is goes on if the first register holds a value.
func is(value []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg0, Data: value} }
