package decode

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"kubeproxy/registry"
)

// A twin is one object that is written both ways at once.
type twin struct {
	kind, version string // of the whole
	json          map[string]any
	proto         []byte
}

func newTwin() *twin { return &twin{json: make(map[string]any)} }

func (w *twin) text(number protowire.Number, name, value string) {
	w.json[name] = value
	w.proto = protowire.AppendTag(w.proto, number, protowire.BytesType)
	w.proto = protowire.AppendString(w.proto, value)
}

func (w *twin) number(number protowire.Number, name string, value int32) {
	w.json[name] = value
	w.proto = protowire.AppendTag(w.proto, number, protowire.VarintType)
	w.proto = protowire.AppendVarint(w.proto, uint64(int64(value)))
}

func (w *twin) bool(number protowire.Number, name string, value bool) {
	w.json[name] = value
	w.proto = protowire.AppendTag(w.proto, number, protowire.VarintType)
	w.proto = protowire.AppendVarint(w.proto, protowire.EncodeBool(value))
}

func (w *twin) message(number protowire.Number, name string, m *twin) {
	w.json[name] = m.json
	w.proto = protowire.AppendTag(w.proto, number, protowire.BytesType)
	w.proto = protowire.AppendBytes(w.proto, m.proto)
}

// add adds an element to a list, a string or a message.
func (w *twin) add(number protowire.Number, name string, element any) {
	list, _ := w.json[name].([]any)
	w.proto = protowire.AppendTag(w.proto, number, protowire.BytesType)
	switch e := element.(type) {
	case string:
		w.json[name] = append(list, e)
		w.proto = protowire.AppendString(w.proto, e)
	case *twin:
		w.json[name] = append(list, e.json)
		w.proto = protowire.AppendBytes(w.proto, e.proto)
	}
}

// entry adds an entry to a map.
func (w *twin) entry(number protowire.Number, name, key, value string) {
	all, _ := w.json[name].(map[string]any)
	if all == nil {
		all = make(map[string]any)
		w.json[name] = all
	}
	all[key] = value
	e := newTwin()
	e.text(1, "key", key)
	e.text(2, "value", value)
	w.proto = protowire.AppendTag(w.proto, number, protowire.BytesType)
	w.proto = protowire.AppendBytes(w.proto, e.proto)
}

// inJSON writes the object as JSON.
func (w *twin) inJSON(t testing.TB) []byte {
	t.Helper()
	w.json["kind"], w.json["apiVersion"] = w.kind, w.version
	value, err := json.Marshal(w.json)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// inProtobuf writes the object into an envelope.
func (w *twin) inProtobuf() []byte { return enveloped(w.version, w.kind, w.proto) }

// enveloped is the protobuf value of an object.
func enveloped(version, kind string, object []byte) []byte {
	meta, envelope := newTwin(), newTwin()
	meta.text(1, "apiVersion", version)
	meta.text(2, "kind", kind)
	envelope.message(1, "typeMeta", meta)
	envelope.message(2, "raw", &twin{proto: object})
	envelope.text(3, "contentEncoding", "")
	envelope.text(4, "contentType", "")
	return append([]byte("k8s\x00"), envelope.proto...)
}

// A twinMaker invents objects. Text is a string that may be anywhere.
type twinMaker struct {
	*rand.Rand
	text string
}

func (m twinMaker) often() bool { return m.IntN(8) > 0 }

func (m twinMaker) seldom() bool { return m.IntN(8) == 0 }

func (m twinMaker) pick(from ...string) string {
	if m.IntN(20) == 0 {
		return m.text
	}
	return from[m.IntN(len(from))]
}

func (m twinMaker) port() int32 {
	if m.IntN(10) == 0 {
		return []int32{0, -1, 65535, 65536, 1 << 30}[m.IntN(5)]
	}
	return 1 + m.Int32N(2000)
}

// randomTwin invents an object and gives the key it is under.
func randomTwin(r *rand.Rand, text string) (key string, w *twin) {
	m := twinMaker{r, text}
	w = newTwin()
	w.version = "v1"
	if m.often() {
		w.message(1, "metadata", m.metadata())
	}
	switch m.IntN(3) {
	case 0:
		w.kind, key = "Service", registry.SpecsPrefix+"prod/web"
		if m.often() {
			w.message(2, "spec", m.serviceSpec())
		}
		if m.IntN(3) == 0 {
			status, balancer, ingress := newTwin(), newTwin(), newTwin()
			ingress.text(1, "ip", m.address())
			ingress.text(3, "ipMode", m.pick("VIP", "Proxy", ""))
			balancer.add(1, "ingress", ingress)
			status.message(1, "loadBalancer", balancer)
			w.message(3, "status", status)
		}
	case 1:
		w.kind, key = "Endpoints", registry.EndpointsPrefix+"prod/web"
		for range m.IntN(3) {
			w.add(2, "subsets", m.subset())
		}
	default:
		w.kind, key = "EndpointSlice", registry.EndpointSlicesPrefix+"prod/web"
		w.version = []string{"discovery.k8s.io/v1", "discovery.k8s.io/v1beta1"}[m.IntN(2)]
		for range m.IntN(6) {
			w.add(2, "endpoints", m.endpoint())
		}
		for range m.IntN(4) {
			w.add(3, "ports", m.namedPort(true))
		}
		if m.often() {
			w.text(4, "addressType", m.pick("IPv4", "IPv4", "IPv6", "FQDN", "IP"))
		}
	}
	if m.seldom() { // unknown fields
		w.proto = protowire.AppendFixed64(protowire.AppendTag(w.proto, 77, protowire.Fixed64Type), 1)
		w.proto = protowire.AppendFixed32(protowire.AppendTag(w.proto, 78, protowire.Fixed32Type), 1)
		w.text(79, "unknown", m.text)
	}
	return key, w
}

func (m twinMaker) metadata() *twin {
	w := newTwin()
	if m.often() {
		w.text(1, "name", m.pick("web"))
	}
	if m.often() {
		w.text(3, "namespace", m.pick("prod"))
	}
	if m.often() {
		w.entry(11, "labels", "kubernetes.io/service-name", m.pick("web", "web", "web", "", "a/b"))
	}
	w.entry(11, "labels", "app", m.text)
	if m.IntN(20) == 0 {
		w.entry(11, "labels", m.pick(labelOtherProxy, labelHeadless), "")
	}
	if m.IntN(4) == 0 {
		w.entry(12, "annotations", rangesAnnotation, m.pick("10.0.0.0/8, fd00::/8", "", " ", "10.0.0.0/8,"))
	}
	w.entry(12, "annotations", m.text, "")
	return w
}

func (m twinMaker) serviceSpec() *twin {
	w := newTwin()
	for range m.IntN(5) {
		w.add(1, "ports", m.namedPort(false))
	}
	if m.often() {
		w.text(3, "clusterIP", m.pick("10.96.0.1", "10.96.0.1", "10.96.0.1", "None"))
	}
	if m.IntN(3) == 0 {
		w.add(5, "externalIPs", m.address())
		w.add(18, "clusterIPs", m.pick("10.96.0.1", "fd00::96", "None"))
	}
	if m.often() {
		w.text(4, "type", m.pick("ClusterIP", "NodePort", "LoadBalancer", "ExternalName"))
	}
	if m.often() {
		w.text(7, "sessionAffinity", m.pick("None", "ClientIP", "ClientIP"))
	}
	if m.IntN(3) == 0 {
		for range m.IntN(4) {
			w.add(9, "loadBalancerSourceRanges", m.pick("10.0.0.0/8", "fd00::/8", "192.0.2.1/32", " ::ffff:10.0.0.0/104"))
		}
	}
	if m.IntN(3) == 0 {
		config, client := newTwin(), newTwin()
		if m.often() {
			client.number(1, "timeoutSeconds", m.port()-1)
		}
		if m.often() {
			config.message(1, "clientIP", client)
		}
		w.message(14, "sessionAffinityConfig", config)
	}
	return w
}

// namedPort is a port of a service or of a slice, which have the same numbers for what they have in common.
func (m twinMaker) namedPort(ofSlice bool) *twin {
	w := newTwin()
	if m.often() {
		w.text(1, "name", m.pick("", "a", "b", strings.Repeat("c", 63)))
	}
	if m.often() {
		w.text(2, "protocol", m.pick("TCP", "UDP", "SCTP", "udp", ""))
	}
	if m.often() {
		w.number(3, "port", m.port())
	}
	if !ofSlice && m.often() {
		w.number(5, "nodePort", m.port())
	}
	return w
}

func (m twinMaker) address() string {
	return m.pick("10.0.0.1", "10.0.0.2", "fd00::1", "web.example", "-", "0.0.0.0")
}

func (m twinMaker) subset() *twin {
	w := newTwin()
	for range m.IntN(4) {
		a := newTwin()
		if m.often() {
			a.text(1, "ip", m.address())
		}
		w.add(1, "addresses", a)
	}
	for range m.IntN(3) {
		a := newTwin()
		a.text(1, "ip", m.address())
		w.add(2, "notReadyAddresses", a)
	}
	for range m.IntN(4) {
		p := newTwin()
		if m.often() {
			p.text(1, "name", m.pick("", "a", "b"))
		}
		if m.often() {
			p.number(2, "port", m.port())
		}
		p.text(3, "protocol", m.text)
		w.add(3, "ports", p)
	}
	return w
}

func (m twinMaker) endpoint() *twin {
	w := newTwin()
	for range m.IntN(3) {
		w.add(1, "addresses", m.address())
	}
	if m.IntN(2) == 0 {
		c := newTwin()
		for i, name := range []string{"ready", "serving", "terminating"} {
			if m.IntN(3) > 0 {
				c.bool(protowire.Number(1+i), name, m.IntN(2) == 0)
			}
		}
		w.message(2, "conditions", c)
	}
	if m.seldom() {
		w.text(6, "nodeName", m.text)
	}
	return w
}
