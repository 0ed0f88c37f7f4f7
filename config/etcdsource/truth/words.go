package truth

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// The keys that the writer writes. Few names, so that they are changed, deleted and made again often;
// flat and namespaced keys that name the same object; keys that name none; and the neighbours of the
// prefix, which the source must not even hear of.
var (
	serviceKeys = append(keysBelow(registry.SpecsPrefix, "a", "b", "c", "d", "e", "f"),
		keysBelow(registry.SpecsPrefix, "default/a", "default/b", "default/c", "prod/a", "prod/b", "prod/g", "prod/h", "test/a")...)
	endpointsKeys = append(keysBelow(registry.EndpointsPrefix, "a", "b", "c", "d", "e", "f"),
		keysBelow(registry.EndpointsPrefix, "default/a", "default/b", "default/i", "prod/a", "prod/b", "prod/g", "prod/j", "test/a")...)
	sliceKeys = keysBelow(registry.EndpointSlicesPrefix, "default/a-1", "default/a-2", "default/x", "prod/a-1", "prod/a-2", "prod/k-1")

	recordKeys = slices.Concat(serviceKeys, endpointsKeys, sliceKeys)

	strangeKeys = keysBelow(registry.Prefix, "", "specs", "specs/", "specs/x/", "specs//x", "specs/x/y/z", "endpoints/", "endpointslices/a",
		"endpoints/default/a/b", "nodes/a", "specs-old/a", "endpoint/a", "specs/\xff\x00\n")
)

// OutsideKeys are neighbours of the prefix, which the source must not even hear of.
var OutsideKeys = []string{"/registry/services", "/registry/services0", "/registry/services-x/specs/a", "/registry/service",
	"/registry/pods/a", "/registry/pods/b", "/registry/events/default/c", "registry/services/specs/a"}

func keysBelow(prefix string, names ...string) []string {
	keys := make([]string, len(names))
	for i, name := range names {
		keys[i] = prefix + name
	}
	return keys
}

// Words limit what a writer may invent. The zero value does not.
type Words struct {
	Ports int  // services claim ports up to this one; 0: any
	Spare bool // nothing is deleted by a range that covers other keys than the writer's own
}

// ports is the highest port.
func (l Words) ports() int {
	if l.Ports == 0 {
		return 65535
	}
	return l.Ports
}

// ranges are what is deleted at once, the rarest last. None spares a key that a multi-key transaction
// may write beside it, so each goes alone.
func (l Words) ranges() []string {
	some := []string{registry.SpecsPrefix + "prod/", registry.EndpointsPrefix + "default/", registry.EndpointSlicesPrefix + "default/", registry.SpecsPrefix + "d"}
	if l.Spare {
		return some
	}
	return append(some, registry.EndpointsPrefix, registry.Prefix)
}

// Change invents the next transaction. The caller holds Gate.
func (w *Writer) Change() []Op {
	switch n := w.Random.IntN(100); {
	case n < 45:
		return []Op{w.Put(w.anyKey())}
	case n < 55:
		return []Op{{Key: w.anyKey(), Remove: true}}
	case n < 75: // several keys of all kinds, each put or deleted: all of it or nothing
		var ops []Op
		for _, i := range w.Random.Perm(len(recordKeys))[:2+w.Random.IntN(7)] {
			key := recordKeys[i]
			if w.Random.IntN(3) == 0 {
				ops = append(ops, Op{Key: key, Remove: true})
			} else {
				ops = append(ops, w.Put(key))
			}
		}
		return ops
	case n < 78:
		ranges := w.Words.ranges()
		prefix := ranges[min(w.Random.IntN(len(ranges)*3/2), w.Random.IntN(len(ranges)))]
		return []Op{{Key: prefix, End: clientv3.GetPrefixRangeEnd(prefix), Remove: true}}
	case n < 84:
		return []Op{{Key: pick(w.Random, strangeKeys), Value: w.value(pick(w.Random, serviceKeys)), Remove: n == 83}}
	default:
		return []Op{{Key: pick(w.Random, OutsideKeys), Value: w.value(pick(w.Random, serviceKeys))}}
	}
}

func (w *Writer) anyKey() string {
	return pick(w.Random, [][]string{serviceKeys, endpointsKeys, sliceKeys}[w.Random.IntN(3)])
}

// Put writes a value that stands in some relation to what is there: another one, the same bytes, the
// same meaning in other bytes, one that was there before, or one that does not decode.
func (w *Writer) Put(key string) Op {
	versions := w.History.Newest().keys[key]
	var now string
	if n := len(versions); n > 0 {
		now = versions[n-1].Value
	}
	switch n := w.Random.IntN(20); {
	case n < 2 && now != "":
		return Op{Key: key, Value: now}
	case n < 4 && now != "":
		return Op{Key: key, Value: " " + now}
	case n < 6 && len(versions) > 0:
		return Op{Key: key, Value: pick(w.Random, versions).Value}
	case n < 10:
		return Op{Key: key, Value: w.badValue(key)}
	}
	return Op{Key: key, Value: w.value(key)}
}

// value invents a record that decodes, in one of the stored formats.
func (w *Writer) value(key string) string {
	padding := ""
	if w.Random.IntN(100) == 0 {
		padding = strings.Repeat("x", 30_000) // a page and a response may be large
	}
	number, v1 := 1+w.Random.IntN(w.Words.ports()), w.Random.IntN(2) == 0
	listen := "node"
	if w.Random.IntN(3) == 0 { // few addresses, so that several services want one
		listen = fmt.Sprintf("127.77.0.%d%s", 2+w.Random.IntN(4), pick(w.Random, []string{"", ",node"}))
	}
	switch service := strings.HasPrefix(key, registry.SpecsPrefix); {
	case service && v1:
		return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"x","annotations":{"p":%q,"kube-proxy/listen":%q}},"spec":{"ports":[`+
			`{"name":"a","port":%d,"protocol":"TCP"},{"name":"b","port":%d,"protocol":"UDP"}],"sessionAffinity":%q}}`,
			padding, listen, number, number, pick(w.Random, []string{"None", "ClientIP"}))
	case service:
		return fmt.Sprintf(`{"kind":"Service","id":"x","apiVersion":"v1beta1","port":%d,"protocol":%q,"selector":{"p":%q},"annotations":{"kube-proxy/listen":%q}}`,
			number, pick(w.Random, []string{"TCP", "UDP"}), padding, listen)
	case strings.HasPrefix(key, registry.EndpointSlicesPrefix):
		return w.slice(number, padding)
	case v1:
		return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":"x","annotations":{"p":%q}},"subsets":[`+
			`{"addresses":[{"ip":"10.0.0.1"},{"ip":"10.0.1.%d"}],"ports":[{"name":"a","port":%d}]}]}`, padding, w.Random.IntN(256), number)
	}
	var addrs []string // sometimes none: a record without endpoints is a record like any other
	for i := range w.Random.IntN(4) {
		addrs = append(addrs, fmt.Sprintf(`"10.1.%d.%d:%d"`, i, w.Random.IntN(256), number))
	}
	return fmt.Sprintf(`{"kind":"Endpoints","id":"x","apiVersion":"v1beta1","endpoints":[%s]}`, strings.Join(addrs, ","))
}

// slice invents an endpoint slice of one of few services, or of none: one of another controller, or one without a label.
func (w *Writer) slice(number int, padding string) string {
	labels := fmt.Sprintf(`"kubernetes.io/service-name":%q`, pick(w.Random, []string{"a", "a", "b", "k"}))
	if w.Random.IntN(10) == 0 {
		labels += `,"service.kubernetes.io/service-proxy-name":"another"`
	}
	var endpoints []string // sometimes none
	for i := range w.Random.IntN(4) {
		conditions := pick(w.Random, []string{``, `"ready":true`, `"ready":false`, `"ready":false,"serving":true,"terminating":true`})
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["10.2.%d.%d"],"conditions":{%s}}`, i, w.Random.IntN(4), conditions))
	}
	return fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"name":"x","annotations":{"p":%q},"labels":{%s}},`+
		`"addressType":"IPv4","endpoints":[%s],"ports":[{"name":%q,"port":%d}]}`, padding, labels, strings.Join(endpoints, ","), pick(w.Random, []string{"", "a"}), number)
}

// badValue invents a value that is no record.
func (w *Writer) badValue(key string) string {
	n := w.Random.IntN(1000)
	whole := w.value(key)
	return pick(w.Random, []string{"", "null", "{", "[]", "k8s\x00\n\x0c", fmt.Sprintf("not a record %d", n), whole[:len(whole)/2],
		fmt.Sprintf(`{"kind":"Pod","id":"p%d"}`, n), fmt.Sprintf(`{"kind":"Service","id":"x","port":%d}`, 70000+n)})
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }
