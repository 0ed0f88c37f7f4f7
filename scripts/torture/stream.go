//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"

	"kubeproxy/scripts/torture/model"
)

// noise is what streams and datagrams consist of. Its length is a prime: bytes that change places by a round number are found out.
var noise = func() []byte {
	all := make([]byte, 1048573)
	r := rand.NewChaCha8([32]byte{})
	_, _ = r.Read(all) // never fails
	return append(all, all...)
}()

// A stream is what one side of a connection sends: its number, and then noise from a place that follows from the number.
type stream uint64

// greeting returns the first bytes of the stream.
func (s stream) greeting() []byte { return binary.BigEndian.AppendUint64(nil, uint64(s)) }

// at returns n bytes of the noise of the stream, of which n is at most a million; offset counts from the beginning of the stream.
func (s stream) at(offset int64, n int) []byte {
	size := uint64(len(noise) / 2)
	from := (uint64(s)*7919 + uint64(offset)) % size
	return noise[from : from+uint64(n)]
}

// differs returns the offset in the stream of the first byte of got that is not the stream's; -1: none.
func (s stream) differs(got []byte, offset int64) int64 {
	want := s.at(offset, len(got))
	if bytes.Equal(got, want) {
		return -1
	}
	for i := range got {
		if got[i] != want[i] {
			return offset + int64(i)
		}
	}
	return -1
}

// fromEndpoint is set in the number of a stream of an endpoint.
const fromEndpoint stream = 1 << 63

const greeting = model.Greeting
