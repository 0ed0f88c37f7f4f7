// Package pages reads the pages of a list of etcd where they lie.
package pages

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// A Reader reads the pages of a list, or the parts of a stream, where they lie: keys and values are slices of the page that came, and
// all of it is good only until the next one is read. gRPC would copy each of them, and a resync, which
// knows nearly all of them, would leave behind as much garbage as the registry is large.
//
// It is a codec for gRPC, for one call of Range after the other, or one of RangeStream.
type Reader struct {
	encoding.CodecV2 // of the requests
	page             []byte
	kvs              []*mvccpb.KeyValue
	answer           etcdserverpb.RangeResponse // of the part of a stream that came
}

// NewReader returns a reader that has read nothing.
func NewReader() *Reader {
	return &Reader{CodecV2: encoding.GetCodecV2(grpcproto.Name)}
}

// Unmarshal implements gRPC's encoding.CodecV2.
func (p *Reader) Unmarshal(data mem.BufferSlice, answer any) error {
	size := data.Len()
	p.page = slices.Grow(p.page[:0], size)[:size]
	data.CopyTo(p.page) // from many buffers, which gRPC wants back
	if part, ok := answer.(*etcdserverpb.RangeStreamResponse); ok {
		return p.readPart(p.page, part)
	}
	return p.read(p.page, answer.(*etcdserverpb.RangeResponse))
}

// partField is the one field of a part: its number in etcd's rpc.proto, and its type.
const partField = 1<<3 | uint64(protowire.BytesType)

// readPart does what proto.Unmarshal does to an empty part of a stream, but refuses one that holds several pages, as no etcd sends it.
func (p *Reader) readPart(message []byte, part *etcdserverpb.RangeStreamResponse) error {
	for f, err := range fields(message) {
		switch {
		case err != nil:
			return fmt.Errorf("a part of a list: %w", err)
		case f.tag != partField:
			if err := f.merge(part); err != nil {
				return fmt.Errorf("a part of a list: %w", err)
			}
		case part.RangeResponse != nil:
			return errors.New("a part of a list with two pages")
		default:
			part.RangeResponse = &p.answer
			part.RangeResponse.Reset()
			if err := p.read(f.bytes, part.RangeResponse); err != nil {
				return err
			}
		}
	}
	return nil
}

// kvsField is the one that a page has many of: its number in etcd's rpc.proto, and its type.
const kvsField = 2<<3 | uint64(protowire.BytesType)

// read does what proto.Unmarshal does to an empty answer.
func (p *Reader) read(page []byte, answer *etcdserverpb.RangeResponse) error {
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
