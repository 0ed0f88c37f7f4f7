package main

import (
	"bytes"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// watchMethod is what a gRPC client asks for when it opens a watch.
const watchMethod = "/etcdserverpb.Watch/Watch"

// hearCalls reads what a gRPC client sends, and reports each method that it calls: the only sure sign that a connection
// carries a watch. The methods are the ":path" of HTTP/2's HEADERS. It returns at the end, or when the bytes are no
// HTTP/2.
func hearCalls(sent io.Reader, called func(method string)) {
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(sent, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return
	}
	framer := http2.NewFramer(nil, sent)
	framer.SetMaxReadFrameSize(1<<24 - 1)
	// gRPC's clients keep to the table size that a server may assume at first, and so does etcd.
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
