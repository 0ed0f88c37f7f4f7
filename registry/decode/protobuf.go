package decode

import (
	"bytes"
	"errors"
	"fmt"

	"kubeproxy/registry"
	"kubeproxy/registry/decode/wire"
)

// protobufMagic is what a protobuf value begins with. Kubernetes has stored such values since 1.6, by default.
var protobufMagic = []byte("k8s\x00")

func isProtobuf(value []byte) bool { return bytes.HasPrefix(value, protobufMagic) }

// readProtobuf reads a value that is protobuf: an envelope (runtime.Unknown) with the kind and the version, and the object in it.
func (s *statement) readProtobuf(k registry.Key, value []byte) error {
	e, err := readEnvelope(value)
	if err == nil {
		err = e.check(k.Kind)
	}
	if err != nil {
		return err
	}
	return s.readObject(k, e.version, e.object)
}

// An envelope is what surrounds each object that is stored as protobuf.
type envelope struct {
	kind, version         string
	encoding, contentType string
	object                []byte
	found                 bool // there is an object, which may be empty
}

func readEnvelope(value []byte) (e envelope, err error) {
	m := wire.Message{Data: value[len(protobufMagic):], Path: "envelope"}
	for m.Next() {
		switch m.Number {
		case 1:
			meta := m.Message("envelope.typeMeta")
			for meta.Next() {
				switch meta.Number {
				case 1:
					e.version = meta.Text("apiVersion")
				case 2:
					e.kind = meta.Text("kind")
				}
			}
			m.Fail(meta.Err)
		case 2:
			raw := m.Message("envelope.raw")
			e.object, e.found = raw.Data, true
		case 3:
			e.encoding = m.Text("envelope.contentEncoding")
		case 4:
			e.contentType = m.Text("envelope.contentType")
		}
	}
	return e, m.Err
}

// check returns why the object cannot be read as one of this kind.
func (e *envelope) check(kind registry.Kind) error {
	nested, known := NestedForm(kind, e.version)
	switch {
	case e.kind != kind.String():
		return fmt.Errorf("kind is %s where %v is wanted", registry.Quote(e.kind), kind)
	case !known || !nested || e.version == "" || e.version == "v1beta3": // which were stored as JSON only
		return fmt.Errorf("unknown apiVersion %s in protobuf", registry.Quote(e.version))
	case e.encoding != "" || e.contentType != "" && e.contentType != "application/vnd.kubernetes.protobuf":
		return fmt.Errorf("protobuf value with an object of another encoding: contentEncoding %s, contentType %s",
			registry.QuoteShort(e.encoding), registry.QuoteShort(e.contentType))
	case !e.found:
		return errors.New("not a valid protobuf value: envelope holds no object")
	}
	return nil
}

// readObject reads the object of an envelope, which names its version.
func (s *statement) readObject(k registry.Key, version string, object []byte) error {
	switch k.Kind {
	case registry.KindService:
		return s.readService(k.Name, wire.Message{Data: object, Path: "object"})
	case registry.KindEndpoints:
		return s.readEndpoints(k.Name, wire.Message{Data: object, Path: "object"})
	}
	return s.readSlice(k.Name, version, object)
}
