package faults

import (
	"bytes"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// watchMethod is the method that a gRPC client of etcd calls to open a watch.
const watchMethod = "/etcdserverpb.Watch/Watch"

// readMethods parses what a gRPC client sends, and reports each method that it calls: the only reliable sign that a connection
// carries a watch. The methods are the ":path" of the HEADERS frames of HTTP/2. It returns at the end, or when the bytes are not
// HTTP/2.
func readMethods(sent io.Reader, called func(method string)) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(sent, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return
	}
	framer := http2.NewFramer(nil, sent)
	framer.SetMaxReadFrameSize(1<<24 - 1)
	// gRPC clients use the initial size of the header table, and etcd does not announce another.
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if headers, ok := frame.(*http2.MetaHeadersFrame); ok {
			called(headers.PseudoValue("path"))
		}
	}
}
