package records

import (
	"testing"

	"kubeproxy/registry/decode"
)

// What a resync costs the goroutine that owns the state when nothing has changed: 10,000 keys compared, and
// a SET of 5,000 services and as many endpoints made of them.
func BenchmarkUnchangedResync10000(b *testing.B) {
	s, all := New(decode.Decoder{}), bigRegistry(5000)
	s.Merge(listOf(all...), 10001, nil, 0)
	s.everything()
	l := s.sifted(all...) // as the reader does with each page
	b.ReportAllocs()
	for b.Loop() {
		if different, _ := s.Merge(l, 10001, nil, 10001); different.N != 0 {
			b.Fatal(different)
		}
		if s, e := s.everything(); len(s) != 5000 || len(e) != 5000 {
			b.Fatal(len(s), len(e))
		}
	}
}

// The first list of a registry of that size, every value of which is decoded.
func BenchmarkFirstList10000(b *testing.B) {
	l := listOf(bigRegistry(5000)...)
	b.ReportAllocs()
	for b.Loop() {
		s := New(decode.Decoder{})
		s.Merge(l, 10001, nil, 0)
		s.everything()
	}
}
