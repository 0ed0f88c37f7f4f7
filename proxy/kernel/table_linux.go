package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/mdlayher/netlink"

	"kubeproxy/registry"
)

// Bounds of what one message and one transaction hold. An attribute has at most 64 KiB, and a transaction has to fit into the buffer of
// the socket, which a user namespace cannot enlarge.
const (
	elementsAMessage     = 400
	elementsATransaction = 800
	socketBuffer         = 4 << 20
)

// openTable makes a table without ports, for listeners that bind to an address.
func openTable(bind netip.Addr) (table, error) {
	t := &nftTable{leaving: make(map[flow]struct{})}
	var err error
	t.conn, err = nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(raw *netlink.Conn) error {
		t.raw = raw
		return errors.Join(raw.SetReadBuffer(socketBuffer), raw.SetWriteBuffer(socketBuffer))
	}))
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	t.nft = &nftables.Table{Name: fmt.Sprintf("%s%d-%08x", tablePrefix, os.Getpid(), rand.Uint32()), Family: nftables.TableFamilyINet}
	if err := createOwned(t.raw, t.nft.Name); err != nil {
		t.close()
		return nil, err
	}
	if err := t.addRules(bind); err != nil {
		t.close()
		return nil, fmt.Errorf("create rules: %w", err)
	}
	return t, nil
}

// tablePrefix is what the names of our tables begin with.
const tablePrefix = "kube-proxy-"

func (t *nftTable) close() { _ = t.conn.CloseLasting() } // the kernel deletes the table with it

// apply makes changes, each as a whole or not at all.
func (t *nftTable) apply(changes []change) error {
	for len(changes) > 0 {
		n, elements := 0, 0
		for n < len(changes) && (n == 0 || elements < elementsATransaction) {
			c := &changes[n]
			elements += 1 + len(c.before) + 2*len(c.after) // once to be chosen, and once to be masqueraded
			if c.id.Protocol == registry.UDP {
				elements += len(c.before) + len(c.after) // as senders
			}
			n++
		}
		if err := t.transact(changes[:n]); err != nil {
			return err
		}
		changes = changes[n:]
	}
	return nil
}

// A difference is the elements of one set that a transaction deletes and adds.
type difference struct {
	set        *nftables.Set
	gone, come []nftables.SetElement
}

// transact makes changes in one transaction.
func (t *nftTable) transact(changes []change) error {
	differences := make([]difference, 0, 19)
	of := func(set *nftables.Set) *difference {
		i := slices.IndexFunc(differences, func(d difference) bool { return d.set == set })
		if i < 0 {
			i, differences = len(differences), append(differences, difference{set: set})
		}
		return &differences[i]
	}
	for i := range changes {
		c := &changes[i]
		if c.recounts() {
			if len(c.before) > 0 || c.shielded {
				d := of(t.part(c.id, c.before).ports)
				d.gone = append(d.gone, nftables.SetElement{Key: portKey(c.id)})
			}
			if len(c.after) > 0 || c.shields {
				p := t.part(c.id, c.after)
				to := &expr.Verdict{Kind: expr.VerdictReturn}
				if len(c.after) > 0 {
					to = &expr.Verdict{Kind: expr.VerdictGoto, Chain: t.chain(p, len(c.after))}
				}
				d := of(p.ports)
				d.come = append(d.come, nftables.SetElement{Key: portKey(c.id), VerdictData: to})
			}
		}
		gone, come := c.differences()
		for _, e := range gone {
			d := of(t.part(c.id, c.before).endpoints)
			d.gone = append(d.gone, nftables.SetElement{Key: endpointKey(c.id, e.number)})
		}
		for _, e := range come {
			d := of(t.part(c.id, c.after).endpoints)
			d.come = append(d.come, nftables.SetElement{Key: endpointKey(c.id, e.number), Val: endpointValue(e.addr)})
		}
		sendersGone, sendersCome := c.senders()
		for _, s := range sendersGone {
			set, key := t.senderSet(c.id, s)
			d := of(set)
			d.gone = append(d.gone, nftables.SetElement{Key: key})
		}
		for _, s := range sendersCome {
			set, key := t.senderSet(c.id, s)
			d := of(set)
			d.come = append(d.come, nftables.SetElement{Key: key})
		}
		left, came := c.members()
		for _, e := range left {
			t.leaving[flow{c.id, e}] = struct{}{}
		}
		for _, e := range came {
			if t.isMasqueraded(flow{c.id, e}) {
				continue
			}
			d := of(t.part(c.id, c.after).carried)
			d.come = append(d.come, nftables.SetElement{Key: append(portKey(c.id), endpointValue(e)...)})
		}
	}
	for _, d := range differences {
		for some := range slices.Chunk(d.gone, elementsAMessage) {
			if err := t.conn.SetDeleteElements(d.set, some); err != nil {
				return err
			}
		}
	}
	for _, d := range differences {
		for some := range slices.Chunk(d.come, elementsAMessage) {
			if err := t.conn.SetAddElements(d.set, some); err != nil {
				return err
			}
		}
	}
	return t.conn.Flush()
}

// isMasqueraded reports whether a port and its new endpoint are masqueraded still, from when the port last had it; from now on they stay so.
func (t *nftTable) isMasqueraded(f flow) bool {
	_, leaves := t.leaving[f]
	_, left := t.left[f]
	delete(t.leaving, f)
	delete(t.left, f)
	return leaves || left
}

// tidy ends the masquerade of endpoints that had left before it was last called. A packet may have been sent to one just before that left, and has to be
// masqueraded after that.
func (t *nftTable) tidy() error {
	gone := make(map[*nftables.Set][]nftables.SetElement)
	for f := range t.left {
		set := t.part(f.id, []netip.AddrPort{f.endpoint}).carried
		gone[set] = append(gone[set], nftables.SetElement{Key: append(portKey(f.id), endpointValue(f.endpoint)...)})
	}
	t.leaving, t.left = make(map[flow]struct{}), t.leaving
	for set, elements := range gone {
		for some := range slices.Chunk(elements, elementsAMessage) {
			if err := cmp.Or(t.conn.SetDeleteElements(set, some), t.conn.Flush()); err != nil {
				return err
			}
		}
	}
	return nil
}

// chain returns the name of the chain of a part for n endpoints, and has the transaction add it if it is not there.
func (t *nftTable) chain(p *part, n int) string {
	name := fmt.Sprintf("of%d-%d", 4+2*p.family, n)
	if p.addressed {
		name = fmt.Sprintf("at%d-%d", 4+2*p.family, n)
	}
	if !p.chains[n] {
		p.chains[n] = true
		t.addChoice(name, p, n)
	}
	return name
}

// connections returns how many connections each port was given since it was last added.
func (t *nftTable) connections() (map[registry.ListenerID]uint64, error) {
	counts := make(map[registry.ListenerID]uint64)
	for i := range t.parts {
		if err := readCounters(t.raw, t.nft.Name, t.parts[i].ports.Name, nil, counts); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

// connectionsOf is connections for the ports of changes alone.
func (t *nftTable) connectionsOf(changes []change) (map[registry.ListenerID]uint64, error) {
	ending := make(map[*part][]registry.ListenerID)
	for i := range changes {
		if c := &changes[i]; len(c.before) > 0 {
			p := t.part(c.id, c.before)
			ending[p] = append(ending[p], c.id)
		}
	}
	counts := make(map[registry.ListenerID]uint64)
	for p, ids := range ending {
		for some := range slices.Chunk(ids, elementsAMessage) {
			if err := readCounters(t.raw, t.nft.Name, p.ports.Name, some, counts); err != nil {
				return nil, err
			}
		}
	}
	return counts, nil
}
