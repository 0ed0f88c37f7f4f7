// Package wire reads protobuf messages in place: their fields one after the other, as they are encoded (protobuf.dev/programming-guides/encoding),
// without a description of what they are. registry/decode reads Kubernetes' records by it.
//
// A Message belongs to one goroutine. What it gives as bytes is part of the data that it reads.
package wire

import (
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// A Message gives the fields of one protobuf message in turn, in place. It is a value: a copy goes on where the original was.
//
//	m := wire.Message{Data: value, Path: "object"}
//	for m.Next() {
//		if m.Number == 1 {
//			name = m.Text("metadata.name")
//		}
//	}
//	return m.Err
//
// No input causes a panic. Lengths are checked, and groups, which Kubernetes does not use, are errors. Fields that the caller does not ask about are skipped, and the first
// error ends it. Places are kept as numbers, because pointers would cost the garbage collector's write barriers.
type Message struct {
	Data []byte
	Path string // where it was found

	at     int              // where the next field begins
	Number protowire.Number // of the present field
	Kind   protowire.Type
	varint uint64 // its value, if that is a number
	from   int    // where its value begins, if that is bytes: they end where the next field begins

	Err error
}

// Next goes to the next field, if there is one.
func (m *Message) Next() bool {
	if m.at == len(m.Data) || m.Err != nil {
		return false
	}
	if m.short() {
		return true
	}
	number, kind, n := protowire.ConsumeTag(m.Data[m.at:])
	if n < 0 {
		return m.broken(n)
	}
	m.at, m.Number, m.Kind = m.at+n, number, kind
	rest := m.Data[m.at:]
	switch kind {
	case protowire.VarintType:
		m.varint, n = protowire.ConsumeVarint(rest)
	case protowire.BytesType:
		var value []byte
		value, n = protowire.ConsumeBytes(rest)
		m.from = m.at + n - len(value)
	case protowire.Fixed32Type:
		_, n = protowire.ConsumeFixed32(rest)
	case protowire.Fixed64Type:
		_, n = protowire.ConsumeFixed64(rest)
	default: // Kubernetes has no groups, which may be nested as deep as they like
		return m.Fail(fmt.Errorf("not a valid protobuf value: %s has a group", m.Path))
	}
	if n < 0 {
		return m.broken(n)
	}
	m.at += n
	return true
}

// short goes to the next field if its tag takes one byte, and so does its number or its length, as of nearly all fields. It reports
// whether that is so. It is [Message.Next] without the other cases.
func (m *Message) short() bool {
	rest := m.Data[m.at:]
	if len(rest) < 2 || rest[0] < 1<<3 || rest[0] >= 1<<7 || rest[1] >= 1<<7 {
		return false
	}
	kind, end := protowire.Type(rest[0]&7), 2
	switch kind {
	case protowire.VarintType:
		m.varint = uint64(rest[1])
	case protowire.BytesType:
		end += int(rest[1])
	default:
		return false
	}
	if end > len(rest) {
		return false
	}
	m.Number, m.Kind = protowire.Number(rest[0]>>3), kind
	m.from, m.at = m.at+2, m.at+end
	return true
}

// Bytes gives the value of a field of that kind.
func (m *Message) Bytes() []byte { return m.Data[m.from:m.at] }

// broken fails by what package protowire says of a length. Its own texts hold a character that differs from build to build.
func (m *Message) broken(n int) bool {
	what := "has a field that is malformed"
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		what = "is cut off"
	}
	return m.Fail(fmt.Errorf("not a valid protobuf value: %s %s", m.Path, what))
}

// Fail ends the message with an error; nil changes nothing.
func (m *Message) Fail(err error) bool {
	if m.Err == nil {
		m.Err = err
	}
	return m.Err == nil
}

// Is fails if the field, which is named by path, is of another kind.
func (m *Message) Is(kind protowire.Type, path, wanted string) bool {
	return m.Kind == kind || m.Fail(fmt.Errorf("not a valid protobuf value: %s is no %s", path, wanted))
}

// Message gives the message that the field holds.
func (m *Message) Message(path string) Message {
	if !m.Is(protowire.BytesType, path, "message") {
		return Message{Path: path}
	}
	return Message{Data: m.Bytes(), Path: path}
}

// Text gives the string that the field holds.
func (m *Message) Text(path string) string {
	if !m.Is(protowire.BytesType, path, "string") {
		return ""
	}
	return m.TextOf(path, m.Bytes())
}

// TextOf gives some bytes as a string. Of the words that nearly every record has it makes no copies.
func (m *Message) TextOf(path string, text []byte) string {
	switch string(text) {
	case "":
		return ""
	case "TCP":
		return "TCP"
	case "UDP":
		return "UDP"
	case "None":
		return "None"
	case "ClientIP":
		return "ClientIP"
	case "IPv4":
		return "IPv4"
	case "v1":
		return "v1"
	case "Service":
		return "Service"
	case "Endpoints":
		return "Endpoints"
	case "EndpointSlice":
		return "EndpointSlice"
	case "discovery.k8s.io/v1":
		return "discovery.k8s.io/v1"
	}
	if !utf8.Valid(text) {
		m.Fail(fmt.Errorf("not a valid protobuf value: %s is not UTF-8", path))
		return ""
	}
	return string(text)
}

// Known is text of which it is known what it most likely is.
func (m *Message) Known(path, text string) string {
	if m.Kind == protowire.BytesType && string(m.Bytes()) == text {
		return text
	}
	return m.Text(path)
}

// MapEntry gives the key and the value of the field, which is an entry of a map of strings.
func (m *Message) MapEntry(path string) (key, value []byte) {
	entry := m.Message(path)
	for entry.Next() {
		switch {
		case entry.Number > 2 || !entry.Is(protowire.BytesType, path, "string"):
		case entry.Number == 1:
			key = entry.Bytes()
		default:
			value = entry.Bytes()
		}
	}
	m.Fail(entry.Err)
	return key, value
}

// Integer gives the number that the field holds. Those of Kubernetes are of 32 bits with a sign: what does not fit is out of every
// range that is checked later.
func (m *Message) Integer(path string) int64 {
	if !m.Is(protowire.VarintType, path, "number") {
		return 0
	}
	return int64(m.varint)
}

// Bool gives the boolean that the field holds.
func (m *Message) Bool(path string) bool {
	return m.Is(protowire.VarintType, path, "boolean") && protowire.DecodeBool(m.varint)
}

// NameIn gives the name that the message in the field consists of.
func (m *Message) NameIn(path string) (name string) {
	of := m.Message(path)
	for of.Next() {
		if of.Number == 1 {
			name = of.Text(path + ".name")
		}
	}
	m.Fail(of.Err)
	return name
}
