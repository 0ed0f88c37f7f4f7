package main

import (
	"bytes"
	"encoding/binary"

	"golang.org/x/net/http2/hpack"
)

// watchMethod is what a gRPC client asks for when it opens a watch.
const watchMethod = "/etcdserverpb.Watch/Watch"

// A callReader learns from the bytes that a gRPC client sends which methods it calls: the only sure
// sign that a connection carries a watch. It reads HTTP/2's frames (RFC 9113, section 4.1) as far as
// is needed for that: HEADERS, whose header block names the method as ":path".
type callReader struct {
	called func(method string)

	begun   bool   // the client's preface is over
	pending []byte // the begin of what is not complete yet: the preface, a frame's head, or HEADERS
	skip    int    // bytes of an uninteresting frame that are still to come
	headers *hpack.Decoder
}

const (
	frameHead    = 9 // length (3 bytes), type, flags, stream (4)
	frameHeaders = 1
	flagPadded   = 0x8
	flagPriority = 0x20
)

var preface = []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")

func newCallReader(called func(method string)) *callReader {
	r := &callReader{called: called}
	// gRPC's clients keep to the table size that a server may assume at first, and so does etcd.
	r.headers = hpack.NewDecoder(4096, func(f hpack.HeaderField) {
		if f.Name == ":path" {
			called(f.Value)
		}
	})
	return r
}

// hear takes the next bytes. It forgets everything when they are no HTTP/2.
func (r *callReader) hear(p []byte) {
	for len(p) > 0 && r.called != nil {
		n := min(r.skip, len(p))
		r.skip -= n
		p = p[n:]
		r.pending = append(r.pending, p...)
		p = nil
		for r.skip == 0 && r.take() {
		}
		if r.skip > 0 {
			p, r.pending = r.pending, nil
		}
	}
}

// take takes one whole thing off what is pending, and tells whether there was one.
func (r *callReader) take() bool {
	if !r.begun {
		n := min(len(r.pending), len(preface))
		if !bytes.Equal(r.pending[:n], preface[:n]) {
			r.called, r.pending = nil, nil // not what we understand
			return false
		}
		if r.begun = n == len(preface); r.begun {
			r.pending = r.pending[n:]
		}
		return r.begun
	}
	if len(r.pending) < frameHead {
		return false
	}
	length := int(binary.BigEndian.Uint32(r.pending) >> 8)
	kind, flags := r.pending[3], r.pending[4]
	if kind != frameHeaders {
		r.pending, r.skip = r.pending[frameHead:], length
		return true
	}
	if len(r.pending) < frameHead+length {
		return false
	}
	block := r.pending[frameHead : frameHead+length]
	r.pending = r.pending[frameHead+length:]
	if flags&flagPadded != 0 && len(block) > 0 {
		padding := int(block[0])
		block = block[1:max(1, len(block)-padding)]
	}
	if flags&flagPriority != 0 {
		block = block[min(5, len(block)):]
	}
	if _, err := r.headers.Write(block); err != nil {
		r.called = nil
	}
	return true
}
