package takeover

import (
	"bytes"
	"slices"
	"testing"
)

// FuzzStream: whatever a peer sends, a stream is refused, or its items say the same again. Each descriptor is given out once or kept.
func FuzzStream(f *testing.F) {
	good := appendItem(appendItem(nil, Item{Kind: 1, Body: []byte("listener"), Descriptors: []int{1}}), Item{Kind: 0x8000})
	f.Add(good, 3, uint8(1))
	f.Add(good, 100, uint8(0))
	f.Add([]byte{0, 1, 0, 253, 0, 0, 0, 0}, 1, uint8(252))
	f.Add([]byte{0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0}, 4, uint8(0))
	f.Fuzz(func(t *testing.T, stream []byte, size int, descriptors uint8) {
		var s scanner
		var again []byte
		var got []int
		size = max(size%maxPayload, 1)
		for n, frame := range slices.Collect(slices.Chunk(stream, size)) {
			var sent []int
			if n == 0 {
				for i := range int(descriptors) {
					sent = append(sent, i)
				}
			}
			s.feed(frame, sent)
			for {
				it, ok, err := s.next()
				if err != nil {
					return
				}
				if !ok {
					break
				}
				again = appendItem(again, it)
				got = append(got, it.Descriptors...)
			}
			if held := len(s.pending) - s.used; held > maxBody+itemHeader {
				t.Fatalf("%d bytes are held", held)
			}
		}
		if !bytes.HasPrefix(stream, again) {
			t.Errorf("the items say %x; sent was %x", again, stream)
		}
		for i, d := range append(got, s.descriptors...) {
			if d != i {
				t.Fatalf("descriptors %v were given out, and %v kept", got, s.descriptors)
			}
		}
		if s.finish(s.seen) == nil && len(again) != len(stream) {
			t.Errorf("a stream of %d bytes is complete with %d", len(stream), len(again))
		}
	})
}

func FuzzGreeting(f *testing.F) {
	f.Add(greeting())
	f.Add(offer{7, lends}.payload())
	f.Add(end{1, 2, 3}.payload())
	f.Fuzz(func(t *testing.T, payload []byte) {
		if o, err := parseOffer(payload); err == nil && !bytes.Equal(o.payload(), payload) {
			t.Errorf("%x is taken for %v", payload, o)
		}
		if e, err := parseEnd(payload); err == nil && !bytes.Equal(e.payload(), payload) {
			t.Errorf("%x is taken for %v", payload, e)
		}
	})
}
