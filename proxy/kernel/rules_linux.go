package kernel

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// reg0 is the first register of four bytes. A key or a value of a map is in consecutive ones.
const reg0 = unix.NFT_REG32_00

// What an address is stored as: its bytes, and where source and destination are in the packet, and in a connection.
var addressing = [2]struct {
	protocol    byte // NFPROTO
	length      uint32
	source      uint32
	destination uint32
	addr        nftables.SetDatatype

	ctSource, ctDestination uint32
}{
	{unix.NFPROTO_IPV4, 4, 12, 16, nftables.TypeIPAddr, unix.NFT_CT_SRC_IP, unix.NFT_CT_DST_IP},
	{unix.NFPROTO_IPV6, 16, 8, 24, nftables.TypeIP6Addr, unix.NFT_CT_SRC_IP6, unix.NFT_CT_DST_IP6},
}

// Packets from and to these networks are the engine's. Those of the loopback are met only where they leave a program; what is
// link-local is not forwarded.
var (
	loopback  = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	linkLocal = []netip.Prefix{netip.MustParsePrefix("fe80::/10")}
)

// addRules creates what is constant in the table.
func (t *nftTable) addRules(bind netip.Addr) error {
	for i := range t.parts {
		t.parts[i] = newPart(t.nft, i)
		p := &t.parts[i]
		for _, set := range []*nftables.Set{p.ports, p.endpoints, p.senders, p.hosts, p.carried} {
			t.lastSet++
			set.ID = t.lastSet
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
	for i := range t.parts {
		if err := t.parts[i].createMasquerade(t.raw, postrouting, bind); err != nil {
			return err
		}
	}
	return nil
}

// newPart returns the part of a table at an index of [nftTable.parts].
func newPart(table *nftables.Table, index int) part {
	p := part{family: index % atAddresses, addressed: index >= atAddresses, chains: make(map[int]bool)}
	a, suffix := addressing[p.family], [4]string{"4", "6", "At4", "At6"}[index]
	key := []nftables.SetDatatype{nftables.TypeInetProto, nftables.TypeInetService}
	if p.addressed {
		key = append([]nftables.SetDatatype{a.addr}, key...)
	}
	and := func(more ...nftables.SetDatatype) nftables.SetDatatype {
		return nftables.MustConcatSetType(append(slices.Clip(key), more...)...)
	}
	set := func(name string, key nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: table, Name: name + suffix, Concatenation: true, KeyType: key}
	}
	p.ports = set("ports", and())
	p.ports.IsMap, p.ports.DataType, p.ports.Counter = true, nftables.TypeVerdict, true
	// The number is declared as a mark, which is four bytes: nft cannot list maps whose key contains an integer.
	p.endpoints = set("endpoints", and(nftables.TypeMark))
	p.endpoints.IsMap, p.endpoints.DataType = true, nftables.MustConcatSetType(a.addr, nftables.TypeInetService)
	p.senders = set("senders", and(a.addr, nftables.TypeInetService))
	p.hosts = set("hosts", and(a.addr))
	p.carried = set("carried", and(a.addr, nftables.TypeInetService))
	return p
}

func (t *nftTable) addRule(c *nftables.Chain, exprs ...expr.Any) {
	t.conn.AddRule(&nftables.Rule{Table: t.nft, Chain: c, Exprs: exprs})
}

// addLookUps adds the rules that look for ports, after those for packets that are left alone: of UDP clients in sets, of TCP connections that
// go on, from and to networks, and to another host. A port of an address comes before that of the node.
func (t *nftTable) addLookUps(c *nftables.Chain, bind netip.Addr, except []netip.Prefix) {
	t.addRule(c, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: reg0}, is([]byte{unix.IPPROTO_UDP}), &expr.Verdict{Kind: expr.VerdictJump, Chain: sendersChain})
	t.addRule(c, goesOn()...)
	for _, network := range except {
		t.addRule(c, append(within(network, true), &expr.Verdict{Kind: expr.VerdictReturn})...)
		t.addRule(c, append(within(network, false), &expr.Verdict{Kind: expr.VerdictReturn})...)
	}
	t.addRule(c,
		&expr.Fib{Register: reg0, FlagDADDR: true, ResultADDRTYPE: true},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg0, Data: []byte{unix.RTN_LOCAL, 0, 0, 0}},
		&expr.Verdict{Kind: expr.VerdictReturn})
	for _, i := range []int{atAddresses, 0, atAddresses + 1, 1} {
		switch p := &t.parts[i]; {
		case p.addressed || bind.IsUnspecified():
			t.addRule(c, p.lookUp(ofFamily(p.family))...)
		case bind.Is4() == (p.family == 0):
			t.addRule(c, p.lookUp(append(ofFamily(p.family), p.loadAddress(addressing[p.family].destination, reg0), is(bind.AsSlice())))...)
		}
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
	for i := range t.parts {
		for _, set := range []*nftables.Set{t.parts[i].senders, t.parts[i].hosts} {
			t.addRule(c, t.parts[i].fromOneOf(set)...)
		}
	}
}

// fromOneOf accepts a datagram of a client in a set, so that no rule of ours translates it.
func (p *part) fromOneOf(senders *nftables.Set) []expr.Any {
	rule, next := p.loadPort()
	return append(append(ofFamily(p.family), rule...),
		p.loadAddress(addressing[p.family].source, next),
		&expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseTransportHeader, Offset: 0, Len: 2, DestRegister: next + p.registers()},
		&expr.Lookup{SourceRegister: reg0, SetName: senders.Name, SetID: senders.ID},
		&expr.Verdict{Kind: expr.VerdictAccept})
}

// lookUp sends packets that match into the chain that the map of ports names.
func (p *part) lookUp(match []expr.Any) []expr.Any {
	port, _ := p.loadPort()
	return append(append(match, port...),
		&expr.Lookup{SourceRegister: reg0, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: p.ports.Name, SetID: p.ports.ID})
}

// addChoice adds the chain that sends a connection to one of n endpoints. A connection that finds no endpoint, since the port has fewer
// now, goes to the listener.
func (t *nftTable) addChoice(name string, p *part, n int) {
	rule, next := p.loadPort()
	found := next + 2
	if p.addressed { // so that nft lists a field of IPv4 or IPv6, and not some bytes
		rule = append(ofFamily(p.family), rule...)
	}
	t.addRule(t.conn.AddChain(&nftables.Chain{Table: t.nft, Name: name}), append(rule,
		&expr.Numgen{Register: next, Modulus: uint32(n), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: reg0, DestRegister: found, IsDestRegSet: true, SetName: p.endpoints.Name, SetID: p.endpoints.ID},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(addressing[p.family].protocol), RegAddrMin: found, RegProtoMin: found + p.registers(), Specified: true},
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

// createMasquerade adds the rule that masquerades connections whose original destination and endpoint are in the set of those that are carried.
// Neither alone would do: other programs translate connections, too, and may use the same ports.
func (p *part) createMasquerade(conn *netlink.Conn, chain *nftables.Chain, bind netip.Addr) error {
	var rule [][]byte
	var failed error
	add := func(encoded []byte, err error) {
		rule, failed = append(rule, encoded), cmp.Or(failed, err)
	}
	a, next := &addressing[p.family], uint32(reg0)
	switch {
	case p.addressed:
		add(ofConnection(original, a.ctDestination, reg0))
		next += p.registers()
	case !bind.IsUnspecified() && bind.Is4() != (p.family == 0):
		return nil
	case !bind.IsUnspecified():
		add(ofConnection(original, a.ctDestination, reg0))
		add(expr.Marshal(unix.NFPROTO_INET, is(bind.AsSlice())))
	}
	add(expr.Marshal(unix.NFPROTO_INET, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next}))
	add(ofConnection(original, unix.NFT_CT_PROTO_DST, next+1))
	add(ofConnection(reply, a.ctSource, next+2))
	add(ofConnection(reply, unix.NFT_CT_PROTO_SRC, next+2+p.registers()))
	add(expr.Marshal(unix.NFPROTO_INET, &expr.Lookup{SourceRegister: reg0, SetName: p.carried.Name, SetID: p.carried.ID}))
	add(expr.Marshal(unix.NFPROTO_INET, &expr.Masq{}))
	if failed != nil {
		return failed
	}
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.NFTA_RULE_TABLE, name(chain.Table.Name))
	e.Bytes(unix.NFTA_RULE_CHAIN, name(chain.Name))
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

// Directions of a connection: as its client began it, and of what its endpoint answers.
const original, reply = 0, 1

// ofConnection encodes an expression that loads a field of a connection in a direction; one of the other family has no such address, and the
// rule ends. Package nftables gives the direction four bytes, and each use of it makes the kernel log a warning: it is one.
func ofConnection(direction uint8, field, register uint32) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Bytes(unix.NFTA_EXPR_NAME, name("ct"))
	e.Nested(unix.NFTA_EXPR_DATA, func(ct *netlink.AttributeEncoder) error {
		ct.Uint32(unix.NFTA_CT_DREG, register)
		ct.Uint32(unix.NFTA_CT_KEY, field)
		ct.Uint8(unix.NFTA_CT_DIRECTION, direction)
		return nil
	})
	return e.Encode()
}

// loadPort loads the key of a port, and returns the register after it.
func (p *part) loadPort() (load []expr.Any, next uint32) {
	next = reg0
	if p.addressed {
		load, next = append(load, p.loadAddress(addressing[p.family].destination, reg0)), reg0+p.registers()
	}
	return append(load,
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: next},
		&expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2, DestRegister: next + 1},
	), next + 2
}

// registers is how many an address takes.
func (p *part) registers() uint32 { return addressing[p.family].length / 4 }

func (p *part) loadAddress(offset, register uint32) expr.Any {
	return loadAddress(p.family, offset, register)
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
	return append(ofFamily(f), loadAddress(f, offset, reg0),
		&expr.Bitwise{SourceRegister: reg0, DestRegister: reg0, Len: a.length, Mask: mask, Xor: make([]byte, a.length)},
		is(network.Masked().Addr().AsSlice()))
}

func ofFamily(f int) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: reg0}, is([]byte{addressing[f].protocol})}
}

func loadAddress(f int, offset, register uint32) expr.Any {
	return &expr.Payload{OperationType: expr.PayloadLoad, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: addressing[f].length, DestRegister: register}
}

// is goes on if the first register holds a value.
func is(value []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: reg0, Data: value} }
