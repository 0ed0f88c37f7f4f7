package decode

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"kubeproxy/registry"
)

// joined gives pieces of messages as one.
func joined(pieces ...[]byte) (all []byte) {
	for _, p := range pieces {
		all = append(all, p...)
	}
	return all
}

// varint is a field with a number, and sub one with bytes.
func varint(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

func sub(number protowire.Number, pieces ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), joined(pieces...))
}

func TestProtobufThatIsNoneIsRefusedByWhatIsWrong(t *testing.T) {
	service := func(pieces ...[]byte) []byte { return enveloped("v1", "Service", joined(pieces...)) }
	slice := func(pieces ...[]byte) []byte {
		return enveloped("discovery.k8s.io/v1", "EndpointSlice", joined(pieces...))
	}
	group := protowire.AppendTag(nil, 9, protowire.StartGroupType)
	envelope := func(fields ...[]byte) []byte {
		meta := sub(1, sub(1, []byte("v1")), sub(2, []byte("Service")))
		return append([]byte("k8s\x00"), joined(append([][]byte{meta}, fields...)...)...)
	}
	port := sub(2, sub(1, varint(3, 80)))
	for _, c := range []struct {
		name, key string
		value     []byte
		want      string
	}{
		{"nothing but the magic", specKey, []byte("k8s\x00"), `kind is "" where Service is wanted`},
		{"cut off", specKey, service(port)[:20], "not a valid protobuf value: envelope is cut off"},
		{"cut off inside", specKey, service([]byte{0x0a, 5, 1}), "not a valid protobuf value: object is cut off"},
		{"field number 0", specKey, service([]byte{0, 0}), "not a valid protobuf value: object has a field that is malformed"},
		{"number without end", specKey, service(append(varint(99, 0)[:2], 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)), "not a valid protobuf value: object has a field that is malformed"},
		{"a group", specKey, service(group), "not a valid protobuf value: object has a group"},
		{"a group deep down", specKey, service(sub(2, sub(1, group))), "not a valid protobuf value: spec.ports has a group"},
		{"the end of a group", specKey, service(protowire.AppendTag(nil, 9, protowire.EndGroupType)), "not a valid protobuf value: object has a group"},
		{"another kind", endpointsKey, service(port), `kind is "Service" where Endpoints is wanted`},
		{"another version", specKey, enveloped("v2", "Service", port), `unknown apiVersion "v2" in protobuf`},
		{"a version that was JSON only", specKey, enveloped("v1beta3", "Service", port), `unknown apiVersion "v1beta3" in protobuf`},
		{"a flat version", specKey, enveloped("v1beta1", "Service", port), `unknown apiVersion "v1beta1" in protobuf`},
		{"no version", sliceKey, enveloped("", "EndpointSlice", nil), `unknown apiVersion "" in protobuf`},
		{"the version of a slice", specKey, enveloped("discovery.k8s.io/v1", "Service", port), `unknown apiVersion "discovery.k8s.io/v1" in protobuf`},
		{"compressed", specKey, envelope(sub(2, port), sub(3, []byte("gzip"))), `protobuf value with an object of another encoding: contentEncoding "gzip", contentType ""`},
		{"JSON inside", specKey, envelope(sub(2, port), sub(4, []byte("application/json"))),
			`protobuf value with an object of another encoding: contentEncoding "", contentType "application/json"`},
		{"the object is a number", specKey, envelope(varint(2, 5)), "not a valid protobuf value: envelope.raw is no message"},
		{"no object", specKey, envelope(), "not a valid protobuf value: envelope holds no object"},
		{"metadata is a number", specKey, service(varint(1, 5), port), "not a valid protobuf value: metadata is no message"},
		{"a port is a string", specKey, service(sub(2, sub(1, sub(3, []byte("80"))))), "not a valid protobuf value: spec.ports.port is no number"},
		{"a name is a number", specKey, service(sub(1, varint(1, 5)), port), "not a valid protobuf value: metadata.name is no string"},
		{"a name is not UTF-8", specKey, service(sub(2, sub(1, sub(1, []byte("\xff")), varint(3, 80)))), "not a valid protobuf value: spec.ports.name is not UTF-8"},
		{"a label is a number", sliceKey, slice(sub(1, sub(11, varint(1, 5)))), "not a valid protobuf value: metadata.labels is no string"},
		{"a port of 64 bits", specKey, service(sub(2, sub(1, varint(3, 1<<32+80)))), "port 4294967376 is not between 1 and 65535"},
		{"a port below zero", specKey, service(sub(2, sub(1, varint(3, 1<<64-1)))), "port -1 is not between 1 and 65535"},
		{"a condition is a string", sliceKey, slice(sub(1, sub(11, sub(1, []byte(labelServiceName)), sub(2, []byte("x")))), sub(2, sub(2, sub(1))), sub(4, []byte("IPv4"))),
			"not a valid protobuf value: endpoints.conditions.ready is no boolean"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := Decode(c.key, c.value)
			checkAnswer(t, r, warnings, err)
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v\n want %s", err, c.want)
			}
		})
	}
}

// A master may be newer than this program, and may write fields in any order.
func TestFieldsOfProtobufThatNobodyKnowsAreSkipped(t *testing.T) {
	unknown := joined(varint(100, 1), sub(101, []byte{0xff}), protowire.AppendFixed32(protowire.AppendTag(nil, 102, protowire.Fixed32Type), 1),
		protowire.AppendFixed64(protowire.AppendTag(nil, 103, protowire.Fixed64Type), 1))
	for _, c := range []struct {
		name, key, version, kind string
		object                   []byte
		want                     string
	}{
		{"service", specKey, "v1", "Service", joined(unknown, sub(2, unknown, sub(1, unknown, varint(3, 80), unknown), unknown), sub(1, unknown)), "Service x: /tcp/80 affinity None"},
		{"endpoints", endpointsKey, "v1", "Endpoints", joined(sub(2, unknown, sub(3, unknown, varint(2, 80)), sub(1, unknown, sub(1, []byte("10.0.0.1")))), unknown), "Endpoints x: /[10.0.0.1:80]"},
		{"slice", sliceKey, "discovery.k8s.io/v1beta1", "EndpointSlice", joined(sub(4, []byte("IPv4")), sub(3, unknown, varint(3, 80)), unknown,
			sub(2, unknown, sub(1, []byte("10.0.0.1")), sub(2, unknown)), sub(1, sub(11, sub(2, []byte("x")), unknown, sub(1, []byte(labelServiceName))))), "EndpointSlice x-1: of x /[10.0.0.1:80]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, warnings, err := Decode(c.key, enveloped(c.version, c.kind, c.object))
			checkAnswer(t, r, warnings, err)
			if err != nil || len(warnings) > 0 || summary(r) != c.want {
				t.Errorf("%s, error %v, warnings %q; want %s", describe(r), err, warnings, c.want)
			}
		})
	}
}

// A value that is cut off or damaged anywhere is refused, or says something that a record may say.
func TestDamagedProtobufIsHarmless(t *testing.T) {
	for _, c := range capturedBy1_36(t, "protobuf") {
		for i := range c.value {
			r, warnings, err := Decode(c.key, c.value[:i])
			checkAnswer(t, r, warnings, err)
			if whole := len(c.value) - len("\x1a\x00\x22\x00"); err == nil && i < whole { // the envelope ends with two empty fields
				t.Errorf("%s: %d of %d bytes are accepted", c.file, i, len(c.value))
			}
			damaged := append([]byte(nil), c.value...)
			damaged[i] ^= byte(1 << (i % 8))
			r, warnings, err = Decode(c.key, damaged)
			checkAnswer(t, r, warnings, err)
		}
	}
}

// As with JSON, the worst values found are held to a bound on memory.
func TestWhatAProtobufValueCostsIsBounded(t *testing.T) {
	const maxAllocated, maxKept = 90 * registry.MaxRecordBytes, 10 * registry.MaxRecordBytes
	fill := func(element []byte) []byte {
		return []byte(strings.Repeat(string(element), (registry.MaxRecordBytes-200)/len(element)))
	}
	label := sub(1, sub(11, sub(1, []byte(labelServiceName)), sub(2, []byte("x"))))
	hosts := func(n int) (all []byte) {
		for i := range n {
			all = append(all, sub(2, sub(1, fmt.Appendf(nil, "h%d", i)))...)
		}
		return all
	}
	ports := func(n int) (all []byte) {
		for i := range n {
			all = append(all, sub(3, sub(1, fmt.Appendf(nil, "%d", i)), varint(3, 1))...)
		}
		return all
	}
	for _, c := range []struct {
		name, key, version, kind string
		object                   []byte
	}{
		{"empty ports", specKey, "v1", "Service", sub(2, fill(sub(1)))},
		{"empty ranges", specKey, "v1", "Service", sub(2, sub(1, varint(3, 80)), fill(sub(9)))},
		{"empty labels", specKey, "v1", "Service", sub(1, fill(sub(11)))},
		{"empty subsets", endpointsKey, "v1", "Endpoints", fill(sub(2))},
		{"empty addresses", endpointsKey, "v1", "Endpoints", sub(2, sub(3, varint(2, 1)), fill(sub(1)))},
		{"empty ports of a subset", endpointsKey, "v1", "Endpoints", sub(2, sub(1, sub(1, []byte("h"))), fill(sub(3)))},
		{"ports of a subset", endpointsKey, "v1", "Endpoints", sub(2, sub(1, sub(1, []byte("h"))), fill(sub(3, varint(2, 1))))},
		{"empty endpoints", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), fill(sub(2)))},
		{"short endpoints", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), sub(3, varint(3, 1)), fill(sub(2, sub(1, []byte("h")))))},
		{"empty ports of a slice", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), fill(sub(3)))},
		{"all with all", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), hosts(256), ports(maxCombined/256))},
		{"one with many", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), hosts(1), ports(maxCombined))},
		{"too many with too many", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), hosts(50_000), ports(50_000))},
		{"one long name", sliceKey, "discovery.k8s.io/v1", "EndpointSlice", joined(label, sub(4, []byte("FQDN")), sub(3, sub(1, fill([]byte("n")))))},
	} {
		t.Run(c.name, func(t *testing.T) {
			value := enveloped(c.version, c.kind, c.object)
			var before, after, kept runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&before)
			r, warnings, err := Decode(c.key, value)
			runtime.ReadMemStats(&after)
			runtime.GC()
			runtime.ReadMemStats(&kept)
			allocated, left := after.TotalAlloc-before.TotalAlloc, int64(kept.HeapAlloc)-int64(before.HeapAlloc)
			t.Logf("%d bytes: %.1f MB allocated, %.1f MB kept, error %v", len(value), float64(allocated)/1e6, float64(left)/1e6, err)
			if len(value) > registry.MaxRecordBytes || allocated > maxAllocated || left > maxKept {
				t.Errorf("%d bytes took %d bytes of memory and kept %d; want at most %d and %d", len(value), allocated, left, maxAllocated, maxKept)
			}
			for _, w := range warnings {
				checkLine(t, string(w))
			}
			if err != nil {
				checkLine(t, err.Error())
			}
			runtime.KeepAlive(value)
			runtime.KeepAlive(r)
		})
	}
}
