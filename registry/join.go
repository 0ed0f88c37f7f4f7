package registry

import (
	"fmt"
	"maps"
	"slices"
)

// MaxJoined bounds how many endpoints all slices of one service may have together, each port counted for itself: about as many as an
// Endpoints record of [MaxRecordBytes] can spell out.
const MaxJoined = 1 << 17

// JoinSlices gives the endpoints that all slices of one service add up to. A port has the ready addresses of all slices, or, if no
// slice has a ready one for it, those that are terminating. Addresses are sorted, so the order depends neither on that of the slices
// nor on which slice holds which address. The result may share memory with the slices.
//
// The first slice counts, and of the others as many, in the order given, as hold 131,072 endpoints with it. The rest is left out, and the
// warning, which is "" if there is none, tells how many.
func JoinSlices(service Name, all []*EndpointSlice) (*Endpoints, Warning) {
	if len(all) == 1 {
		return &Endpoints{Name: service, ByPort: joinOne(all[0]), Weights: joinWeights(all)}, ""
	}
	room := MaxJoined
	ready, terminating := make(map[string][]PortAddrs), make(map[string][]PortAddrs)
	var warning Warning
	for i, s := range all {
		if room -= count(s.Ready) + count(s.Terminating); i > 0 && room < 0 {
			warning = Warning(fmt.Sprintf("its endpoint slices list more than %d endpoints: %d of the %d slices are left out", MaxJoined, len(all)-i, len(all)))
			all = all[:i]
			break
		}
		for _, p := range s.Ready {
			ready[p.Port] = append(ready[p.Port], p)
		}
		for _, p := range s.Terminating {
			terminating[p.Port] = append(terminating[p.Port], p)
		}
	}
	for port, lists := range terminating {
		if ready[port] == nil {
			ready[port] = lists
		}
	}
	e := &Endpoints{Name: service, Weights: joinWeights(all)}
	for _, port := range slices.Sorted(maps.Keys(ready)) {
		e.ByPort = append(e.ByPort, mergeSorted(port, ready[port]))
	}
	return e, warning
}

// joinOne is what a single slice adds up to. Both its lists name the same ports, unless one is empty.
func joinOne(s *EndpointSlice) []PortAddrs {
	if len(s.Ready) > 0 {
		return s.Ready
	}
	return s.Terminating
}

func count(byPort []PortAddrs) (n int) {
	for _, p := range byPort {
		n += p.Addrs.Len()
	}
	return n
}

// mergeSorted gives the addresses of all lists of a port, sorted and each once. Of two places of one address, that of the later list counts.
func mergeSorted(port string, lists []PortAddrs) PortAddrs {
	if len(lists) == 1 {
		return lists[0]
	}
	n := 0
	for _, l := range lists {
		n += l.Addrs.Len()
	}
	all := make([]Addr, 0, n)
	var places map[Addr]Place // nil while nothing is known of any
	for _, l := range lists {
		all = slices.AppendSeq(all, l.Addrs.All())
		if places == nil {
			if l.Places == "" {
				continue
			}
			places = make(map[Addr]Place, n)
		}
		for i, a := range all[len(all)-l.Addrs.Len():] {
			places[a] = l.Places.At(i)
		}
	}
	slices.SortFunc(all, Addr.Compare)
	merged := PortAddrs{Port: port, Addrs: NewAddrs(slices.Compact(all)...)}
	if places != nil {
		merged.Places = PlacesOf(merged.Addrs, func(a Addr) Place { return places[a] })
	}
	return merged
}
