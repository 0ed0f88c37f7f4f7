package edit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// Annotations for the undo, which mean nothing to nodes: the weights that addresses had of their own before they were given others, and those others.
const (
	beforeAnnotation = "drained-by-hand/weights-before"
	givenAnnotation  = "drained-by-hand/weights-given"
)

// A Weighing gives endpoints of a service another weight in its records, for all nodes.
type Weighing struct {
	Service registry.Name
	Of      registry.AddrMatch
	Weight  int
	Undo    bool // the weights of before, in place of Weight
	Force   bool // also if the service has no endpoint with a weight then
}

// Weigh writes weights of single endpoints into the annotation of each record that lists them, Endpoints or slices, whichever count. All else in the
// records stays. Nothing is written unless nodes would take all of it and do what is wanted, or if a record has changed meanwhile.
func Weigh(ctx context.Context, client *clientv3.Client, w Weighing, out Output) error {
	set, err := Read(ctx, client, w.Service)
	if err != nil {
		return err
	}
	counting, err := set.counting()
	if err != nil {
		return err
	}
	var unchanged []clientv3.Cmp
	var puts []clientv3.Op
	var changes []Change
	after := make([][]byte, len(counting))
	listed := false
	for i, kv := range counting {
		unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision))
		value, change, err := w.edit(kv)
		if err != nil {
			return fmt.Errorf("%s: %w", registry.Label(string(kv.Key)), err)
		}
		after[i], listed = value, listed || change != nil
		if change == nil {
			continue
		}
		changes = append(changes, *change)
		if change.Did == wrote {
			puts = append(puts, clientv3.OpPut(change.Key, string(value)))
		}
	}
	if !listed {
		return fmt.Errorf("no record of %s that counts lists such an endpoint", w.Service.Label())
	}
	if err := w.judge(counting, after); err != nil {
		return err
	}
	if len(puts) > 0 {
		revision, err := commit(ctx, client, unchanged, puts)
		if err != nil {
			return err
		}
		for i := range changes {
			if changes[i].Did == wrote {
				changes[i].Revision = revision
			}
		}
	}
	for _, c := range changes {
		if err := out.print(c); err != nil {
			return err
		}
	}
	return nil
}

// counting returns the records whose endpoints count: the slices, if there are any.
func (set *Set) counting() (all []*mvccpb.KeyValue, err error) {
	if set.isSliced() {
		for _, kv := range set.keys {
			if strings.HasPrefix(string(kv.Key), registry.EndpointSlicesPrefix) {
				all = append(all, kv)
			}
		}
	} else if _, kv, err := set.only(registry.EndpointsPrefix); err != nil {
		return nil, err
	} else if kv != nil {
		all = append(all, kv)
	}
	if len(all) > maxDeletes {
		return nil, fmt.Errorf("%s has %d records of endpoints: more than %d are not edited in one step", set.service.Label(), len(all), maxDeletes)
	}
	return all, nil
}

// endpointsOf decodes a record of endpoints: what it lists, also as terminating.
func endpointsOf(key string, value []byte) (slice *registry.EndpointSlice, err error) {
	record, _, err := decode.Decode(key, value)
	switch {
	case err != nil:
		return nil, err
	case record.Endpoints != nil:
		return &registry.EndpointSlice{Ready: record.Endpoints.ByPort, Weights: record.Endpoints.Weights}, nil
	}
	return record.Slice, nil
}

// edit returns the new value of a record, and what that changes; no change if the record lists no such endpoint. A record that does not decode lists none
// for nodes either.
func (w *Weighing) edit(kv *mvccpb.KeyValue) (value []byte, change *Change, err error) {
	key := string(kv.Key)
	lists, err := endpointsOf(key, kv.Value)
	if err != nil {
		return kv.Value, nil, nil
	}
	var all []string
	matched := make(map[string]bool)
	for _, p := range slices.Concat(lists.Ready, lists.Terminating) {
		for a := range p.Addrs.All() {
			all = append(all, a.String())
			if w.Of.Matches(a) {
				matched[a.String()] = true
			}
		}
	}
	if len(matched) == 0 {
		return kv.Value, nil, nil
	}
	record, err := object(kv.Value)
	if err != nil {
		return nil, nil, err
	}
	annotations, err := annotationsOf(key, record)
	if err != nil {
		return nil, nil, err
	}
	weights := text(annotations, registry.WeightAnnotation)
	note := ""
	if isForAll(weights) {
		idle, err := notReady(key, kv.Value)
		if err != nil { // nodes leave those endpoints out, and serve the others
			note = "endpoints that are not ready have no weight of their own in it now: " + err.Error()
		}
		all = append(all, idle...)
	}
	said, before := parseEntries(weights, all), parseEntries(text(annotations, beforeAnnotation), nil)
	ours := parseEntries(text(annotations, givenAnnotation), nil)
	change = &Change{Did: kept, Key: key, Revision: kv.ModRevision, Before: said.String()}
	remembers := before.String() // which may change while no weight does: a drain of what has weight 0 needs its undo, too
	for _, a := range slices.Compact(slices.Sorted(slices.Values(all))) {
		if !matched[a] {
			continue
		}
		old, given := said.get(a)
		remembered, ok := before.get(a)
		if last, known := ours.get(a); known && last != old { // another hand has ended what is remembered
			ok = false
		}
		switch {
		case w.Undo && ok && remembered == "":
			said.remove(a)
		case w.Undo && ok:
			said.set(a, remembered)
		case w.Undo && given && old == "0": // drained by another hand
			said.remove(a)
		case w.Undo && !given && said.drainsHost(a): // likewise. Its other ports stay as they are, unless they are asked for too
			said.set(a, "1")
		case w.Undo:
		default:
			if !ok {
				before.set(a, old)
			}
			said.set(a, strconv.Itoa(w.Weight))
			ours.set(a, strconv.Itoa(w.Weight))
		}
		if w.Undo {
			before.remove(a)
			ours.remove(a)
		}
	}
	if change.After = said.String(); change.After == change.Before && before.String() == remembers {
		return kv.Value, change, nil
	}
	if kv.Lease != 0 {
		return nil, nil, errors.New("it belongs to a lease, so a program such as kube-proxy register keeps it and would write it anew: give the weight there, or on each node, without -everywhere")
	}
	put(annotations, registry.WeightAnnotation, change.After)
	put(annotations, beforeAnnotation, before.String())
	put(annotations, givenAnnotation, ours.String())
	change.Did, change.Note = wrote, note
	value, err = json.Marshal(record)
	if err != nil {
		return nil, nil, err
	}
	_, warned, _ := decode.Decode(key, kv.Value)
	_, warnings, err := decode.Decode(key, value)
	for _, w := range warnings {
		if err == nil && !slices.Contains(warned, w) {
			err = errors.New(string(w))
		}
	}
	return value, change, err
}

// notReady returns the addresses of a record that are not ready, which nodes leave out; of a slice, the ready ones, too. One weight for all is that of
// each of them when it becomes ready.
func notReady(key string, value []byte) (addresses []string, err error) {
	record, err := object(value)
	if err != nil {
		return nil, err
	}
	for _, endpoint := range objects(record["endpoints"]) {
		take(endpoint, "conditions")
	}
	for _, s := range objects(record["subsets"]) {
		take(s, "addresses")
		s["addresses"] = take(s, "notReadyAddresses")
	}
	made, err := json.Marshal(record)
	if err != nil {
		return nil, err
	}
	lists, err := endpointsOf(key, made)
	if err != nil {
		return nil, err
	}
	for _, p := range lists.Ready {
		for a := range p.Addrs.All() {
			addresses = append(addresses, a.String())
		}
	}
	return addresses, nil
}

// take removes a field, whose name nodes take in any letter case, and returns what it held.
func take(object map[string]any, field string) (held any) {
	for name, value := range object {
		if strings.EqualFold(name, field) {
			held = value
			delete(object, name)
		}
	}
	return held
}

// objects returns the objects of a list.
func objects(list any) (all []map[string]any) {
	elements, _ := list.([]any)
	for _, e := range elements {
		if object, ok := e.(map[string]any); ok {
			all = append(all, object)
		}
	}
	return all
}

// judge looks at what nodes make of all records together: whether each endpoint has the weight that it is to have, for the last slice that names an
// address counts, and whether a port that had an endpoint with a weight still has one.
func (w *Weighing) judge(counting []*mvccpb.KeyValue, after [][]byte) error {
	var then, now []*registry.EndpointSlice
	for i, kv := range counting {
		old, err := endpointsOf(string(kv.Key), kv.Value)
		if err != nil {
			continue
		}
		fresh, err := endpointsOf(string(kv.Key), after[i])
		if err != nil {
			return fmt.Errorf("%s: %w", registry.Label(string(kv.Key)), err)
		}
		then, now = append(then, old), append(now, fresh)
	}
	before, _ := registry.JoinSlices(w.Service, then)
	wanted, _ := registry.JoinSlices(w.Service, now)
	for i, p := range wanted.ByPort {
		weights, usable := wanted.Weights.Of(p.Addrs), false
		n := 0
		for a := range p.Addrs.All() {
			weight := 1
			if weights != nil {
				weight = weights[n]
			}
			n++
			usable = usable || weight > 0
			if !w.Undo && w.Of.Matches(a) && weight != w.Weight {
				return fmt.Errorf("%s would have weight %d: another record of the service gives it that, and counts", a, weight)
			}
		}
		if !usable && !w.Force && !w.Undo && before.Weights.Zeros(before.ByPort[i].Addrs) < before.ByPort[i].Addrs.Len() {
			return fmt.Errorf("no other endpoint of %s has a weight, so new clients would be refused on all nodes; -force does it all the same", w.Service.Label())
		}
	}
	return nil
}

// annotationsOf returns the annotations of a record, and makes them if there are none.
func annotationsOf(key string, record map[string]any) (map[string]any, error) {
	parsed, err := registry.ParseKey(key)
	if err != nil {
		return nil, err
	}
	version, _ := record["apiVersion"].(string)
	at := record
	if nested, _ := decode.NestedForm(parsed.Kind, version); nested {
		if at, err = within(record, "metadata"); err != nil {
			return nil, err
		}
		if err := spelled(at); err != nil {
			return nil, err
		}
	}
	return within(at, "annotations")
}

// within returns the object in a field, and makes it if it is not there.
func within(object map[string]any, field string) (map[string]any, error) {
	if object[field] == nil {
		object[field] = make(map[string]any)
	}
	inner, ok := object[field].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("its field %q is no object: edit it by hand", field)
	}
	return inner, nil
}

func text(annotations map[string]any, name string) string {
	s, _ := annotations[name].(string) // another type does not decode
	return s
}

func put(annotations map[string]any, name, value string) {
	if value == "" {
		delete(annotations, name)
		return
	}
	annotations[name] = value
}

// entries are weights of addresses as an annotation spells them: ADDRESS=WEIGHT. An empty weight is that of an address without one of its own.
type entries []entry

type entry struct{ of, weight string }

// isForAll reports whether an annotation is one weight for all addresses.
func isForAll(annotation string) bool { return annotation != "" && !strings.Contains(annotation, "=") }

// parseEntries reads an annotation. One weight for all becomes one for each of the addresses.
func parseEntries(annotation string, all []string) (said entries) {
	if isForAll(annotation) {
		for _, a := range all {
			said.set(a, annotation)
		}
		return said
	}
	for one := range strings.SplitSeq(annotation, ",") {
		if of, weight, ok := strings.Cut(strings.TrimSpace(one), "="); ok {
			if a, err := registry.ParseAddr(of); err == nil {
				of = a.String()
			}
			said = append(said, entry{of, weight})
		}
	}
	return said
}

func (e entries) index(of string) int {
	return slices.IndexFunc(e, func(one entry) bool { return one.of == of })
}

func (e entries) get(of string) (weight string, ok bool) {
	if i := e.index(of); i >= 0 {
		return e[i].weight, true
	}
	return "", false
}

// drainsHost reports whether the host of an address has weight 0.
func (e entries) drainsHost(addr string) bool {
	host, _, _ := net.SplitHostPort(addr)
	weight, ok := e.get(host)
	if !ok {
		weight, _ = e.get("[" + host + "]")
	}
	return weight == "0"
}

func (e *entries) set(of, weight string) {
	if i := e.index(of); i >= 0 {
		(*e)[i].weight = weight
	} else {
		*e = append(*e, entry{of, weight})
	}
}

func (e *entries) remove(of string) {
	*e = slices.DeleteFunc(*e, func(one entry) bool { return one.of == of })
}

func (e entries) String() string {
	var parts []string
	for _, one := range e {
		parts = append(parts, one.of+"="+one.weight)
	}
	return strings.Join(parts, ",")
}
