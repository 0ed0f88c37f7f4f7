package registry

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// protobufMagic is what a protobuf value begins with. Kubernetes has stored such values since 1.6, by default.
var protobufMagic = []byte("k8s\x00")

func isProtobuf(value []byte) bool { return bytes.HasPrefix(value, protobufMagic) }

// readProtobuf reads a value that is protobuf: an envelope (runtime.Unknown) with the kind and the version, and the object in it.
func (s *statement) readProtobuf(k Key, value []byte) error {
	e, err := readEnvelope(value)
	if err == nil {
		err = e.check(k.Kind)
	}
	if err != nil {
		return err
	}
	return s.readObject(k, e.object)
}

// An envelope is what surrounds each object that is stored as protobuf.
type envelope struct {
	kind, version         string
	encoding, contentType string
	object                []byte
	found                 bool // there is an object, which may be empty
}

func readEnvelope(value []byte) (e envelope, err error) {
	m := message{data: value[len(protobufMagic):], path: "envelope"}
	for m.next() {
		switch m.number {
		case 1:
			meta := m.message("envelope.typeMeta")
			for meta.next() {
				switch meta.number {
				case 1:
					e.version = meta.text("apiVersion")
				case 2:
					e.kind = meta.text("kind")
				}
			}
			m.fail(meta.err)
		case 2:
			raw := m.message("envelope.raw")
			e.object, e.found = raw.data, true
		case 3:
			e.encoding = m.text("envelope.contentEncoding")
		case 4:
			e.contentType = m.text("envelope.contentType")
		}
	}
	return e, m.err
}

// check returns why the object cannot be read as one of this kind.
func (e *envelope) check(kind Kind) error {
	nested, known := NestedForm(kind, e.version)
	switch {
	case e.kind != kind.String():
		return fmt.Errorf("kind is %s where %v is wanted", Quote(e.kind), kind)
	case !known || !nested || e.version == "" || e.version == "v1beta3": // which were stored as JSON only
		return fmt.Errorf("unknown apiVersion %s in protobuf", Quote(e.version))
	case e.encoding != "" || e.contentType != "" && e.contentType != "application/vnd.kubernetes.protobuf":
		return fmt.Errorf("protobuf value with an object of another encoding: contentEncoding %s, contentType %s",
			quote(e.encoding, maxQuotedShort), quote(e.contentType, maxQuotedShort))
	case !e.found:
		return errors.New("not a valid protobuf value: envelope holds no object")
	}
	return nil
}

// readObject reads the object of an envelope.
func (s *statement) readObject(k Key, object []byte) error {
	switch k.Kind {
	case KindService:
		return s.readService(k.Name, message{data: object, path: "object"})
	case KindEndpoints:
		return s.readEndpoints(k.Name, message{data: object, path: "object"})
	}
	return s.readSlice(k.Name, object)
}

// A message gives the fields of one protobuf message in turn, in place. Fields that nobody asks about are passed over, and the first
// error ends it. Places are kept as numbers, because pointers would cost the garbage collector's write barriers.
type message struct {
	data []byte
	path string // where it was found

	at     int              // where the next field begins
	number protowire.Number // of the present field
	kind   protowire.Type
	varint uint64 // its value, if that is a number
	from   int    // where its value begins, if that is bytes: they end where the next field begins

	err error
}

// next goes to the next field, if there is one.
func (m *message) next() bool {
	if m.at == len(m.data) || m.err != nil {
		return false
	}
	if m.short() {
		return true
	}
	number, kind, n := protowire.ConsumeTag(m.data[m.at:])
	if n < 0 {
		return m.broken(n)
	}
	m.at, m.number, m.kind = m.at+n, number, kind
	rest := m.data[m.at:]
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
		return m.fail(fmt.Errorf("not a valid protobuf value: %s has a group", m.path))
	}
	if n < 0 {
		return m.broken(n)
	}
	m.at += n
	return true
}

// short goes to the next field if its tag takes one byte, and so does its number or its length, as of nearly all fields. It reports
// whether that is so. It is [message.next] without the other cases, in a third of the time.
func (m *message) short() bool {
	rest := m.data[m.at:]
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
	m.number, m.kind = protowire.Number(rest[0]>>3), kind
	m.from, m.at = m.at+2, m.at+end
	return true
}

// bytes gives the value of a field of that kind.
func (m *message) bytes() []byte { return m.data[m.from:m.at] }

// broken fails by what package protowire says of a length. Its own texts hold a character that differs from build to build.
func (m *message) broken(n int) bool {
	what := "has a field that is malformed"
	if errors.Is(protowire.ParseError(n), io.ErrUnexpectedEOF) {
		what = "is cut off"
	}
	return m.fail(fmt.Errorf("not a valid protobuf value: %s %s", m.path, what))
}

// fail ends the message with an error; nil changes nothing.
func (m *message) fail(err error) bool {
	if m.err == nil {
		m.err = err
	}
	return m.err == nil
}

// is fails if the field, which is named by path, is of another kind.
func (m *message) is(kind protowire.Type, path, wanted string) bool {
	return m.kind == kind || m.fail(fmt.Errorf("not a valid protobuf value: %s is no %s", path, wanted))
}

// message gives the message that the field holds.
func (m *message) message(path string) message {
	if !m.is(protowire.BytesType, path, "message") {
		return message{path: path}
	}
	return message{data: m.bytes(), path: path}
}

// text gives the string that the field holds.
func (m *message) text(path string) string {
	if !m.is(protowire.BytesType, path, "string") {
		return ""
	}
	return m.textOf(path, m.bytes())
}

// textOf gives some bytes as a string. Of the words that nearly every record has it makes no copies.
func (m *message) textOf(path string, text []byte) string {
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
		m.fail(fmt.Errorf("not a valid protobuf value: %s is not UTF-8", path))
		return ""
	}
	return string(text)
}

// known is text of which it is known what it most likely is.
func (m *message) known(path, text string) string {
	if m.kind == protowire.BytesType && string(m.bytes()) == text {
		return text
	}
	return m.text(path)
}

// mapEntry gives the key and the value of the field, which is an entry of a map of strings.
func (m *message) mapEntry(path string) (key, value []byte) {
	entry := m.message(path)
	for entry.next() {
		switch {
		case entry.number > 2 || !entry.is(protowire.BytesType, path, "string"):
		case entry.number == 1:
			key = entry.bytes()
		default:
			value = entry.bytes()
		}
	}
	m.fail(entry.err)
	return key, value
}

// integer gives the number that the field holds. Those of Kubernetes are of 32 bits with a sign: what does not fit is out of every
// range that is checked later.
func (m *message) integer(path string) int64 {
	if !m.is(protowire.VarintType, path, "number") {
		return 0
	}
	return int64(m.varint)
}

// condition gives the boolean that the field holds.
func (m *message) condition(path string) condition {
	switch {
	case !m.is(protowire.VarintType, path, "boolean"):
		return unsaid
	case protowire.DecodeBool(m.varint):
		return isTrue
	}
	return isFalse
}
