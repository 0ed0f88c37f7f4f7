package etcdsource

import (
	"fmt"
	"iter"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// A pageReader reads the pages of a list where they lie: keys and values are slices of the page that came, and
// all of it is good only until the next one is read. gRPC would copy each of them, and a resync, which
// knows nearly all of them, would leave behind as much garbage as the registry is large.
//
// It is a codec for gRPC, for one call of Range after the other.
type pageReader struct {
	encoding.CodecV2 // of the requests
	page             []byte
	kvs              []*mvccpb.KeyValue
}

func newPageReader() *pageReader {
	return &pageReader{CodecV2: encoding.GetCodecV2(grpcproto.Name)}
}

// callOptions are those of a call whose answer it reads. gRPC calls the one that names a codec experimental:
// without it everything would work as before, and cost more.
func (p *pageReader) callOptions() []grpc.CallOption {
	return append(slices.Clip(callOptions), grpc.ForceCodecV2(p))
}

// Unmarshal implements gRPC's encoding.CodecV2.
func (p *pageReader) Unmarshal(data mem.BufferSlice, answer any) error {
	size := data.Len()
	p.page = slices.Grow(p.page[:0], size)[:size]
	data.CopyTo(p.page) // from many buffers, which gRPC wants back
	return p.read(p.page, answer.(*etcdserverpb.RangeResponse))
}

// The fields that a page has many of: their numbers in etcd's rpc.proto and kv.proto, and their types.
const (
	kvsField = 2<<3 | uint64(protowire.BytesType)

	keyField      = 1<<3 | uint64(protowire.BytesType)
	createdField  = 2<<3 | uint64(protowire.VarintType)
	modifiedField = 3<<3 | uint64(protowire.VarintType)
	versionField  = 4<<3 | uint64(protowire.VarintType)
	valueField    = 5<<3 | uint64(protowire.BytesType)
	leaseField    = 6<<3 | uint64(protowire.VarintType)
)

// read does what proto.Unmarshal does to an empty answer.
func (p *pageReader) read(page []byte, answer *etcdserverpb.RangeResponse) error {
	answer.Kvs = p.kvs[:0]
	for f, err := range fields(page) {
		switch {
		case err != nil:
		case f.tag == kvsField:
			n := len(answer.Kvs)
			if n < len(p.kvs) { // the page before had as many
				answer.Kvs = p.kvs[:n+1]
				answer.Kvs[n].Reset()
			} else {
				answer.Kvs = append(answer.Kvs, new(mvccpb.KeyValue))
			}
			err = readKeyValue(f.bytes, answer.Kvs[n])
		default:
			err = f.merge(answer)
		}
		if err != nil {
			return fmt.Errorf("a page of a list, near key %d of it: %w", len(answer.Kvs), err)
		}
	}
	p.kvs = answer.Kvs
	return nil
}

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
