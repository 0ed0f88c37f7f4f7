package registry

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Weights are those of the endpoints of a record, by their hosts, or by host and port: HOST=WEIGHT and HOST:PORT=WEIGHT, sorted, with commas
// between. A weight of HOST:PORT comes before that of HOST; without either it is 1. An endpoint gets clients in proportion to its weight, and no
// new ones at 0.
type Weights string

// MaxWeight is the greatest weight, as in HAProxy.
const MaxWeight = 256

// WeightAnnotation names the weights of an Endpoints or an EndpointSlice.
const WeightAnnotation = "kube-proxy/weight"

// ParseWeights reads the annotation: a weight for all addresses of the record, or HOST=WEIGHT and HOST:PORT=WEIGHT with commas between. An IPv6
// address stands in brackets before a port.
func ParseWeights(annotation string, byPort ...[]PortAddrs) (Weights, error) {
	all := newWeightTable()
	if !strings.Contains(annotation, "=") {
		weight, err := ParseWeight(annotation)
		if err != nil {
			return "", inAnnotation(WeightAnnotation, err)
		}
		for _, ports := range byPort {
			for _, p := range ports {
				for a := range p.Addrs.All() {
					all.places[a.String()] = weight // and not for the host, where another record may have another endpoint
				}
			}
		}
		return all.weights(), nil
	}
	for entry := range strings.SplitSeq(annotation, ",") {
		text, number, ok := strings.Cut(strings.TrimSpace(entry), "=")
		of, key, err := all.placeFor(text)
		if !ok || err != nil {
			return "", inAnnotation(WeightAnnotation, fmt.Errorf("%s is no weight of an address, such as 10.1.2.3=5, 10.1.2.3:80=5 or [fd00::3]:80=5", Quote(entry)))
		}
		if _, again := of[key]; again {
			return "", inAnnotation(WeightAnnotation, fmt.Errorf("%s has two weights", Quote(text)))
		}
		weight, err := ParseWeight(number)
		if err != nil {
			return "", inAnnotation(WeightAnnotation, err)
		}
		of[key] = weight
	}
	return all.weights(), nil
}

// ParseWeight reads one weight.
func ParseWeight(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n > MaxWeight || s != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("%s is no weight from 0 to %d", Quote(s), MaxWeight)
	}
	return int(n), nil
}

// A weightTable is weights that can be looked up.
type weightTable struct{ hostTable[int] }

func newWeightTable() weightTable { return weightTable{newHostTable[int]()} }

// of returns the weight of an address.
func (t *weightTable) of(a Addr) int {
	if weight, ok := t.find(a); ok {
		return weight
	}
	return 1
}

// weights spells the table.
func (t *weightTable) weights() Weights {
	said := maps.Clone(t.hosts)
	maps.Copy(said, t.places)
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(said)) {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(key)
		b.WriteByte('=')
		b.WriteString(strconv.Itoa(said[key]))
	}
	return Weights(b.String())
}

// canonical spells the table without what would follow from the rest.
func (t *weightTable) canonical() Weights {
	if t.hosts == nil { // as of most records: without an allocation
		return ""
	}
	maps.DeleteFunc(t.places, func(place string, weight int) bool {
		host, ok := t.hosts[strings.Trim(place[:strings.LastIndexByte(place, ':')], "[]")]
		return ok && weight == host || !ok && weight == 1
	})
	maps.DeleteFunc(t.hosts, func(_ string, weight int) bool { return weight == 1 })
	return t.weights()
}

// Canonical returns the weights without what would follow from the rest, as [Endpoints] have them: two that give each address the same are equal.
func (w Weights) Canonical() Weights { return joinWeights([]*EndpointSlice{{Weights: w}}) }

// table returns the weights as a table; false if there are none.
func (w Weights) table() (t weightTable, ok bool) {
	if w == "" {
		return t, false
	}
	t = newWeightTable()
	for entry := range strings.SplitSeq(string(w), ",") {
		key, number, _ := strings.Cut(entry, "=")
		of := t.hosts
		if strings.HasPrefix(key, "[") || strings.Count(key, ":") == 1 {
			of = t.places
		}
		of[key], _ = strconv.Atoi(number) // which always works
	}
	return t, true
}

// Of returns the weight of each address of a list, in its order; nil if all are 1.
func (w Weights) Of(addrs Addrs) []int {
	table, ok := w.table()
	if !ok {
		return nil
	}
	weights, differ := make([]int, 0, addrs.Len()), false
	for a := range addrs.All() {
		weight := table.of(a)
		weights, differ = append(weights, weight), differ || weight != 1
	}
	if !differ {
		return nil
	}
	return weights
}

// Zeros counts the addresses of a list that have weight 0.
func (w Weights) Zeros(addrs Addrs) (n int) {
	for _, weight := range w.Of(addrs) {
		if weight == 0 {
			n++
		}
	}
	return n
}

// Check reports an error if no records give Endpoints these weights.
func (w Weights) Check() error {
	if w == "" {
		return nil
	}
	same, err := ParseWeights(string(w))
	if err == nil && same.Canonical() != w {
		err = fmt.Errorf("weights %s are spelled otherwise", Quote(string(w)))
	}
	return err
}

// joinWeights gives the weights of all slices. Of two weights of one host, or of one host and port, that of the later slice counts.
func joinWeights(parts []*EndpointSlice) Weights {
	var all weightTable
	for _, s := range parts {
		t, _ := s.Weights.table()
		if all.hosts == nil {
			all = t
			continue
		}
		maps.Copy(all.hosts, t.hosts)
		maps.Copy(all.places, t.places)
	}
	return all.canonical()
}
