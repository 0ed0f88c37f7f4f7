package kernel

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// A chainTable has a chain for each port and one for each of its endpoints, as kube-proxy of Kubernetes 1.33 makes them: a map sends a port
// to its chain, whose one rule sends a connection to the chain of one endpoint, whose one rule translates. It lacks what else that
// kube-proxy adds to them: rules that mark hairpin connections, and comments. It is there to be compared with.
type chainTable struct {
	conn  *nftables.Conn
	nft   *nftables.Table
	ports *nftables.Set
	made  int // chains of endpoints, each of which has a name of its own
	of    map[string][]string
}

func newChainTable(b *testing.B) *chainTable {
	b.Helper()
	t := &chainTable{of: make(map[string][]string)}
	var err error
	t.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(raw *netlink.Conn) error {
		return cmp.Or(raw.SetReadBuffer(256<<20), raw.SetWriteBuffer(256<<20)) // one transaction has thousands of ports
	}))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = t.conn.CloseLasting() }) // the table goes with the network
	t.nft = t.conn.AddTable(&nftables.Table{Name: "chains", Family: nftables.TableFamilyINet})
	t.ports = &nftables.Set{Table: t.nft, Name: "ports", IsMap: true, Concatenation: true, DataType: nftables.TypeVerdict,
		KeyType: nftables.MustConcatSetType(nftables.TypeInetProto, nftables.TypeInetService)}
	if err := t.conn.AddSet(t.ports, nil); err != nil {
		b.Fatal(err)
	}
	base := t.conn.AddChain(&nftables.Chain{Table: t.nft, Name: "prerouting", Type: nftables.ChainTypeNAT,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest})
	port, _ := new(part).loadPort()
	t.conn.AddRule(&nftables.Rule{Table: t.nft, Chain: base, Exprs: append(port,
		&expr.Lookup{SourceRegister: reg0, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: t.ports.Name})})
	if err := t.conn.Flush(); err != nil {
		b.Fatal(err)
	}
	return t
}

func (t *chainTable) chain(name string) *nftables.Chain {
	return &nftables.Chain{Table: t.nft, Name: name}
}

// apply makes changes, as many in a transaction as the socket has room for.
func (t *chainTable) apply(changes []change) error {
	for some := range slices.Chunk(changes, 2000) {
		for i := range some {
			if err := t.add(&some[i]); err != nil {
				return err
			}
		}
		if err := t.conn.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// add adds a change of one port to the transaction: new chains for endpoints that come, another rule for the port, and no chains any more for
// those that go.
func (t *chainTable) add(c *change) error {
	name := fmt.Sprint("port-", c.id.Number)
	had := t.of[name]
	has := make([]string, len(c.after))
	for i, e := range c.after {
		if i < len(c.before) && c.before[i] == e {
			has[i] = had[i]
			continue
		}
		t.made++
		has[i] = fmt.Sprint("endpoint-", t.made)
		t.conn.AddRule(&nftables.Rule{Table: t.nft, Chain: t.conn.AddChain(t.chain(has[i])), Exprs: dnat(e)})
	}
	chain := t.chain(name)
	if had == nil {
		t.conn.AddChain(chain)
		if err := t.conn.SetAddElements(t.ports, []nftables.SetElement{{Key: portKey(c.id), VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: name}}}); err != nil {
			return err
		}
	} else {
		t.conn.FlushChain(chain)
	}
	choice := &nftables.Set{Table: t.nft, Anonymous: true, Constant: true, IsMap: true, KeyType: nftables.TypeMark, DataType: nftables.TypeVerdict}
	var elements []nftables.SetElement
	for i, endpoint := range has {
		elements = append(elements, nftables.SetElement{Key: binary.NativeEndian.AppendUint32(nil, uint32(i)),
			VerdictData: &expr.Verdict{Kind: expr.VerdictGoto, Chain: endpoint}})
	}
	if err := t.conn.AddSet(choice, elements); err != nil {
		return err
	}
	t.conn.AddRule(&nftables.Rule{Table: t.nft, Chain: chain, Exprs: []expr.Any{
		&expr.Numgen{Register: reg0, Modulus: uint32(len(has)), Type: unix.NFT_NG_RANDOM},
		&expr.Lookup{SourceRegister: reg0, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true, SetName: choice.Name, SetID: choice.ID},
	}})
	for i, endpoint := range had {
		if !slices.Contains(has, endpoint) {
			t.conn.FlushChain(t.chain(had[i]))
			t.conn.DelChain(t.chain(had[i]))
		}
	}
	t.of[name] = has
	return nil
}

func dnat(e netip.AddrPort) []expr.Any {
	return []expr.Any{
		&expr.Immediate{Register: reg0, Data: e.Addr().AsSlice()},
		&expr.Immediate{Register: reg0 + 1, Data: binary.BigEndian.AppendUint16(nil, e.Port())},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: unix.NFPROTO_IPV4, RegAddrMin: reg0, RegProtoMin: reg0 + 1, Specified: true},
	}
}

// A stint is how long something took, and how long processors worked for it.
type stint struct{ wall, cpu []time.Duration }

func (s *stint) time(b *testing.B, do func() error) {
	b.Helper()
	used, began := processorTime(), time.Now()
	if err := do(); err != nil {
		b.Fatal(err)
	}
	s.wall, s.cpu = append(s.wall, time.Since(began)), append(s.cpu, processorTime()-used)
}

// report reports medians in milliseconds.
func (s *stint) report(b *testing.B, what string) {
	for unit, all := range map[string][]time.Duration{"ms": s.wall, "cpu-ms": s.cpu} {
		slices.Sort(all)
		b.ReportMetric(all[len(all)/2].Seconds()*1000, what+"-"+unit)
	}
}

// processorTime is what the process has used, in itself and in the kernel.
func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it has no reason to fail
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBesideChains measures our table beside one with a chain for each port and endpoint, in turn: how long it takes to load all ports, three
// times, and then to replace one endpoint of one port. Each port has ten endpoints.
func BenchmarkBesideChains(b *testing.B) {
	for _, ports := range []int{1, 1000, 10_000} {
		b.Run(fmt.Sprint(ports), func(b *testing.B) {
			if testing.Short() && ports > 1000 {
				b.Skip("the kernel takes a minute for the chains of 10,000 ports")
			}
			besideChains(b, ports)
		})
	}
}

func besideChains(b *testing.B, ports int) {
	all := manyPorts(ports, 10)
	var loads, changes [2]stint // of ours, and of that with chains
	var ours *nftTable
	var chains *chainTable
	for range 3 { // what is left of a round goes with its networks
		ownNetwork(b) // each has its own: the size of one table is not to slow the other
		ours = newTable(b)
		ownNetwork(b)
		chains = newChainTable(b)
		loads[0].time(b, func() error { return ours.apply(all) })
		loads[1].time(b, func() error { return chains.apply(all) })
	}
	runtime.GC() // now, and not while a change is timed
	id, has := all[ports/2].id, all[ports/2].after
	for i := 0; b.Loop(); i++ {
		next := slices.Clone(has)
		next[i%10] = backends(byte(2+i/10%2), 0, 10)[i%10]
		one := []change{{id: id, before: has, after: next}}
		changes[0].time(b, func() error { return ours.apply(one) })
		changes[1].time(b, func() error { return chains.apply(one) })
		has = next
	}
	for i, what := range []string{"", "chains-"} {
		loads[i].report(b, what+"load")
		changes[i].report(b, what+"change")
	}
}
