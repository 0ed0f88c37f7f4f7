package decode

import (
	"fmt"
	"strings"
	"testing"

	"kubeproxy/registry"
)

// benchmarkDecode decodes one record over and over; it must be accepted.
func benchmarkDecode(b *testing.B, key string, value []byte) {
	b.SetBytes(int64(len(value)))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := Decode(key, value); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeService(b *testing.B) {
	for _, file := range []string{"service-v1beta1-stored.json", "service-v1-multiport.json"} {
		b.Run(file, func(b *testing.B) {
			benchmarkDecode(b, registry.SpecsPrefix+"default/frontend", fixture{File: file}.value(b))
		})
	}
}

func BenchmarkDecodeEndpoints(b *testing.B) {
	for _, c := range []struct {
		n    int
		file string
	}{
		{3, "endpoints-v1beta1-stored.json"},
		{20_000, "endpoints-huge.json"},
	} {
		b.Run(fmt.Sprint(c.n), func(b *testing.B) {
			benchmarkDecode(b, registry.EndpointsPrefix+"frontend", fixture{File: c.file}.value(b))
		})
	}
}

func BenchmarkDecodeSlice(b *testing.B) {
	var endpoints []string
	for i := range 10 {
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":["10.244.1.%d"],"conditions":{"ready":true,"serving":true,"terminating":false},"nodeName":"node1","zone":"z1"}`, i))
	}
	value := slice("frontend", `"addressType":"IPv4","endpoints":[`+strings.Join(endpoints, ",")+`],"ports":[{"name":"","protocol":"TCP","port":80}]`)
	benchmarkDecode(b, sliceKey, []byte(value))
}

func BenchmarkDecodeProtobuf(b *testing.B) {
	for _, c := range capturedBy1_36(b, "protobuf") {
		switch c.file {
		case "services--specs--default--clusterip.bin", "services--endpoints--default--clusterip.bin":
			b.Run(c.file, func(b *testing.B) { benchmarkDecode(b, c.key, c.value) })
		}
	}
	w := newTwin()
	w.version, w.kind = "discovery.k8s.io/v1", "EndpointSlice"
	meta := newTwin()
	meta.text(1, "name", "x-1")
	meta.text(3, "namespace", "default")
	meta.entry(11, "labels", labelServiceName, "frontend")
	w.message(1, "metadata", meta)
	for i := range 10 {
		e, c := newTwin(), newTwin()
		e.add(1, "addresses", fmt.Sprintf("10.244.1.%d", i))
		c.bool(1, "ready", true)
		c.bool(2, "serving", true)
		c.bool(3, "terminating", false)
		e.message(2, "conditions", c)
		e.text(6, "nodeName", "node1")
		e.text(7, "zone", "z1")
		w.add(2, "endpoints", e)
	}
	p := newTwin()
	p.text(1, "name", "")
	p.text(2, "protocol", "TCP")
	p.number(3, "port", 80)
	w.add(3, "ports", p)
	w.text(4, "addressType", "IPv4")
	b.Run("slice of ten", func(b *testing.B) { benchmarkDecode(b, sliceKey, w.inProtobuf()) })
}
