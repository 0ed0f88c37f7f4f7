package faults

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// requests returns what a client sends that calls the methods one after the other on one connection.
func requests(t *testing.T, methods ...string) []byte {
	t.Helper()
	var wire, block bytes.Buffer
	wire.WriteString(http2.ClientPreface)
	framer, encoder := http2.NewFramer(&wire, nil), hpack.NewEncoder(&block)
	if err := framer.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	for i, method := range methods {
		block.Reset()
		for _, f := range []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":path", Value: method}} {
			if err := encoder.WriteField(f); err != nil {
				t.Fatal(err)
			}
		}
		stream := uint32(2*i + 1)
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true, PadLength: uint8(i % 3)})
		if err != nil {
			t.Fatal(err)
		}
		if err := framer.WriteData(stream, false, bytes.Repeat([]byte("PRI * HTTP/2.0"), i*1000)); err != nil {
			t.Fatal(err)
		}
	}
	return wire.Bytes()
}

// TestEachMethodIsFoundHoweverTheBytesAreSplit: the second time HPACK encodes a method as an index of one byte, and pieces end
// anywhere.
func TestEachMethodIsFoundHoweverTheBytesAreSplit(t *testing.T) {
	want := []string{"/etcdserverpb.Auth/Authenticate", "/etcdserverpb.KV/Range", "/etcdserverpb.KV/Range", watchMethod}
	wire := requests(t, want...)
	for _, size := range []int{1, 2, 3, 7, 100, 1000, len(wire)} {
		var got []string
		sent, copied := io.Pipe()
		go func() {
			for piece := range slices.Chunk(wire, size) {
				_, _ = copied.Write(piece)
			}
			copied.Close()
		}()
		readMethods(sent, func(method string) { got = append(got, method) })
		if !slices.Equal(got, want) {
			t.Errorf("in pieces of %d: %q; want %q", size, got, want)
		}
	}
}

func TestNoMethodIsFoundInWhatIsNotHTTP2(t *testing.T) {
	readMethods(strings.NewReader(strings.Repeat("GET /health HTTP/1.1\r\n\r\n", 1000)), func(method string) { t.Errorf("found %q", method) })
}
