package wire

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// A field is what protowire says of one.
type field struct {
	number protowire.Number
	kind   protowire.Type
	varint uint64
	bytes  []byte
}

// plain reads the fields of a message by protowire alone; ok is false if something is wrong with it.
func plain(data []byte) (fields []field, ok bool) {
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 || kind == protowire.StartGroupType || kind == protowire.EndGroupType {
			return fields, false
		}
		data = data[n:]
		f := field{number: number, kind: kind}
		if n = protowire.ConsumeFieldValue(number, kind, data); n < 0 {
			return fields, false
		}
		switch kind {
		case protowire.VarintType:
			f.varint, _ = protowire.ConsumeVarint(data)
		case protowire.BytesType:
			f.bytes, _ = protowire.ConsumeBytes(data)
		}
		fields, data = append(fields, f), data[n:]
	}
	return fields, true
}

// The short way of Next and the long one are the same as protowire.
func FuzzMessage(f *testing.F) {
	var long []byte
	long = protowire.AppendTag(long, 3, protowire.BytesType)
	long = protowire.AppendBytes(long, bytes.Repeat([]byte("x"), 300))
	long = protowire.AppendTag(long, 1000, protowire.VarintType)
	long = protowire.AppendVarint(long, 1<<40)
	for _, seed := range [][]byte{nil, {8, 1}, {10, 2, 'h', 'i'}, {10, 3, 'h', 'i'}, {8}, {8, 0x80}, {0, 0}, {0x0d, 1, 2, 3, 4}, {0x09, 1}, {0x0b}, {0x0f, 1}, {10, 0, 8, 127, 8, 128, 1}, long} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		want, ok := plain(data)
		m := Message{Data: data, Path: "it"}
		n := 0
		for ; m.Next(); n++ {
			if n == len(want) {
				t.Fatalf("%x: field %d of %d: %d", data, n+1, len(want), m.Number)
			}
			w := want[n]
			if m.Number != w.number || m.Kind != w.kind {
				t.Fatalf("%x: field %d has number %d and type %d; want %d and %d", data, n+1, m.Number, m.Kind, w.number, w.kind)
			}
			switch w.kind {
			case protowire.BytesType:
				if !bytes.Equal(m.Bytes(), w.bytes) {
					t.Fatalf("%x: field %d is %x; want %x", data, n+1, m.Bytes(), w.bytes)
				}
			case protowire.VarintType:
				if got := m.Integer("it"); got != int64(w.varint) {
					t.Fatalf("%x: field %d is %d; want %d", data, n+1, got, w.varint)
				}
			}
		}
		if n != len(want) || (m.Err == nil) != ok {
			t.Errorf("%x: %d fields, %v; want %d, all well: %v", data, n, m.Err, len(want), ok)
		}
	})
}

func TestTheFirstErrorOfAMessageEndsIt(t *testing.T) {
	m := Message{Data: []byte{8, 1, 8, 2}, Path: "it"}
	if !m.Next() || m.Text("it.name") != "" || m.Err == nil || !strings.Contains(m.Err.Error(), "it.name is no string") {
		t.Errorf("a number as text: %v", m.Err)
	}
	if m.Next() {
		t.Error("it goes on after its error")
	}
}
