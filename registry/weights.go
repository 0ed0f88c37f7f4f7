package registry

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Weights are those of the endpoints of a record, by their hosts, as far as they are not 1: HOST=WEIGHT, sorted, with commas between. Two
// that say the same are equal. An endpoint gets clients in proportion to its weight, and no new ones at 0.
type Weights string

// MaxWeight is the greatest weight, as in HAProxy.
const MaxWeight = 256

// WeightAnnotation names the weights of an Endpoints or an EndpointSlice.
const WeightAnnotation = "kube-proxy/weight"

// ParseWeights reads the annotation: a weight for all addresses of the record, or HOST=WEIGHT with commas between.
func ParseWeights(annotation string, byPort ...[]PortAddrs) (Weights, error) {
	all := make(map[string]int)
	if !strings.Contains(annotation, "=") {
		weight, err := ParseWeight(annotation)
		if err != nil {
			return "", inAnnotation(WeightAnnotation, err)
		}
		for _, ports := range byPort {
			for _, p := range ports {
				for a := range p.Addrs.All() {
					all[a.hostText()] = weight
				}
			}
		}
		return newWeights(all), nil
	}
	for entry := range strings.SplitSeq(annotation, ",") {
		text, number, ok := strings.Cut(strings.TrimSpace(entry), "=")
		host, err := ParseHost(text)
		if !ok || err != nil {
			return "", inAnnotation(WeightAnnotation, fmt.Errorf("%s is no weight of an address, such as 10.1.2.3=5", Quote(entry)))
		}
		if _, again := all[host.hostText()]; again {
			return "", inAnnotation(WeightAnnotation, fmt.Errorf("%s has two weights", Quote(text)))
		}
		weight, err := ParseWeight(number)
		if err != nil {
			return "", inAnnotation(WeightAnnotation, err)
		}
		all[host.hostText()] = weight
	}
	return newWeights(all), nil
}

// ParseWeight reads one weight.
func ParseWeight(s string) (int, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n > MaxWeight || s != strconv.FormatUint(n, 10) {
		return 0, fmt.Errorf("%s is no weight from 0 to %d", Quote(s), MaxWeight)
	}
	return int(n), nil
}

// newWeights spells weights.
func newWeights(all map[string]int) Weights {
	var b strings.Builder
	for _, host := range slices.Sorted(maps.Keys(all)) {
		if all[host] == 1 {
			continue
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(host)
		b.WriteByte('=')
		b.WriteString(strconv.Itoa(all[host]))
	}
	return Weights(b.String())
}

// table returns the weights by the hosts; nil for none.
func (w Weights) table() map[string]int {
	if w == "" {
		return nil
	}
	all := make(map[string]int)
	for entry := range strings.SplitSeq(string(w), ",") {
		host, number, _ := strings.Cut(entry, "=")
		all[host], _ = strconv.Atoi(number) // which always works
	}
	return all
}

// Of returns the weight of each address of a list, in its order; nil if all are 1.
func (w Weights) Of(addrs Addrs) []int {
	table := w.table()
	if table == nil {
		return nil
	}
	weights, differ := make([]int, 0, addrs.Len()), false
	for a := range addrs.All() {
		weight, ok := table[a.hostText()]
		if !ok {
			weight = 1
		}
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

// Check reports an error if no record gives these weights.
func (w Weights) Check() error {
	if w == "" {
		return nil
	}
	same, err := ParseWeights(string(w))
	if err == nil && same != w {
		err = fmt.Errorf("weights %s are spelled otherwise", Quote(string(w)))
	}
	return err
}

// hostText is the host of an address, as weights spell it.
func (a Addr) hostText() string {
	if a.Host != "" {
		return a.Host
	}
	return a.IP.Addr().String()
}

// joinWeights gives the weights of several slices. Of two weights of one host, that of the later slice counts.
func joinWeights(parts []*EndpointSlice) Weights {
	var first Weights
	several := false
	for _, s := range parts {
		if s.Weights != "" {
			several, first = several || first != "", s.Weights
		}
	}
	if !several {
		return first
	}
	all := make(map[string]int)
	for _, s := range parts {
		maps.Copy(all, s.Weights.table())
	}
	return newWeights(all)
}
