package pages

import (
	"iter"
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The fields of a key-value: their numbers in etcd's kv.proto, and their types.
const (
	keyField      = 1<<3 | uint64(protowire.BytesType)
	createdField  = 2<<3 | uint64(protowire.VarintType)
	modifiedField = 3<<3 | uint64(protowire.VarintType)
	versionField  = 4<<3 | uint64(protowire.VarintType)
	valueField    = 5<<3 | uint64(protowire.BytesType)
	leaseField    = 6<<3 | uint64(protowire.VarintType)
)

// readKeyValue does what proto.Unmarshal does to an empty key-value, but key and value are slices of the message.
func readKeyValue(message []byte, kv *mvccpb.KeyValue) error {
	for f, err := range fields(message) {
		if err != nil {
			return err
		}
		switch f.tag {
		case keyField:
			kv.Key = f.bytes
		case createdField:
			kv.CreateRevision = int64(f.number)
		case modifiedField:
			kv.ModRevision = int64(f.number)
		case versionField:
			kv.Version = int64(f.number)
		case valueField:
			kv.Value = f.bytes
		case leaseField:
			kv.Lease = int64(f.number)
		default:
			if err := f.merge(kv); err != nil {
				return err
			}
		}
	}
	return nil
}

// A field is one of a message in protobuf's format.
type field struct {
	whole  []byte
	tag    uint64 // number and type
	bytes  []byte // the value, if it is of this type
	number uint64 // the value, if it is of type varint
}

// fields gives those of a message in their order. An error is the last.
func fields(message []byte) iter.Seq2[field, error] {
	return func(yield func(field, error) bool) {
		for len(message) > 0 {
			f, err := firstField(message)
			if !yield(f, err) || err != nil {
				return
			}
			message = message[len(f.whole):]
		}
	}
}

func firstField(message []byte) (f field, err error) {
	num, typ, start := protowire.ConsumeTag(message)
	if start < 0 {
		return f, protowire.ParseError(start)
	}
	n := 0 // the length of the value
	switch typ {
	case protowire.BytesType:
		f.bytes, n = protowire.ConsumeBytes(message[start:])
	case protowire.VarintType:
		f.number, n = protowire.ConsumeVarint(message[start:])
	default:
		n = protowire.ConsumeFieldValue(num, typ, message[start:])
	}
	if n < 0 {
		return f, protowire.ParseError(n)
	}
	f.whole, f.tag, f.bytes = message[:start+n], protowire.EncodeTag(num, typ), slices.Clip(f.bytes)
	return f, nil
}

// merge has the library add a field to what it belongs to.
func (f field) merge(into proto.Message) error {
	return proto.UnmarshalOptions{Merge: true}.Unmarshal(f.whole, into)
}
