package etcdsource

import (
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// A message is what etcd says on a watch stream: of its WatchResponse what we use. It is read where it lies: keys
// and values are slices of the bytes that came. These belong to the message, which may wait for its reader as long
// as it likes. One event takes one allocation; of a WatchResponse it would take eight.
type message struct {
	at        time.Time // when it was received
	cluster   uint64    // the cluster that says it
	revision  int64     // which etcd had come to then; events of it may still be to come
	id        int64     // of the watch
	created   bool
	canceled  bool
	compacted int64  // if cancelled for this: what it had to tell next was compacted at this revision
	reason    string // why it was cancelled
	fragment  bool   // more of the same revision follows
	events    []event
}

// An event is a change of one key.
type event struct {
	kv      mvccpb.KeyValue // as it is now; of a deleted key there are only the key and the revision
	deleted bool
}

// last gives the revision of the last event. There must be one.
func (m *message) last() int64 { return m.events[len(m.events)-1].kv.ModRevision }

// A messageReader is a codec for gRPC whose answers are messages.
type messageReader struct {
	encoding.CodecV2 // of the requests
}

func newMessageReader() messageReader {
	return messageReader{encoding.GetCodecV2(grpcproto.Name)}
}

// Unmarshal implements gRPC's encoding.CodecV2.
func (messageReader) Unmarshal(data mem.BufferSlice, m any) error {
	return m.(*message).read(toKeep(data))
}

// toKeep gives the bytes of a message, for good. Most come in one frame of up to 1 KB: its buffer was made for it
// and is of no pool, which is what a SliceBuffer promises, so it is left to the garbage collector. A larger
// one goes back to gRPC's pool as soon as the message was read. Not to let it go would be safe, too; but the pool would
// have to make another, which is larger than the copy.
func toKeep(data mem.BufferSlice) []byte {
	if len(data) == 1 {
		if frame, ok := data[0].(mem.SliceBuffer); ok {
			return frame
		}
	}
	return data.Materialize()
}

// The fields that are read: their numbers in etcd's rpc.proto and kv.proto, and their types.
const (
	headerField    = 1<<3 | uint64(protowire.BytesType)
	watchIDField   = 2<<3 | uint64(protowire.VarintType)
	isCreatedField = 3<<3 | uint64(protowire.VarintType)
	canceledField  = 4<<3 | uint64(protowire.VarintType)
	compactedField = 5<<3 | uint64(protowire.VarintType)
	reasonField    = 6<<3 | uint64(protowire.BytesType)
	fragmentField  = 7<<3 | uint64(protowire.VarintType)
	eventsField    = 11<<3 | uint64(protowire.BytesType)

	headerClusterField  = 1<<3 | uint64(protowire.VarintType)
	headerRevisionField = 3<<3 | uint64(protowire.VarintType)

	eventTypeField = 1<<3 | uint64(protowire.VarintType)
	eventKVField   = 2<<3 | uint64(protowire.BytesType)
)

// read makes m the message that lies in these bytes.
func (m *message) read(bytes []byte) error {
	*m = message{events: make([]event, 0, countFields(bytes, eventsField))}
	for f, err := range fields(bytes) {
		if err == nil {
			err = m.take(f)
		}
		if err != nil {
			return fmt.Errorf("a message of a watch, near event %d of it: %w", len(m.events), err)
		}
	}
	return nil
}

func (m *message) take(f field) error {
	switch f.tag {
	case headerField:
		return m.takeHeader(f.bytes)
	case watchIDField:
		m.id = int64(f.number)
	case isCreatedField:
		m.created = f.number != 0
	case canceledField:
		m.canceled = f.number != 0
	case compactedField:
		m.compacted = int64(f.number)
	case reasonField:
		m.reason = string(f.bytes)
	case fragmentField:
		m.fragment = f.number != 0
	case eventsField:
		m.events = append(m.events, event{})
		return m.events[len(m.events)-1].read(f.bytes)
	}
	return nil
}

func (m *message) takeHeader(header []byte) error {
	for f, err := range fields(header) {
		if err != nil {
			return err
		}
		switch f.tag {
		case headerClusterField:
			m.cluster = f.number
		case headerRevisionField:
			m.revision = int64(f.number)
		}
	}
	return nil
}

func (e *event) read(bytes []byte) error {
	for f, err := range fields(bytes) {
		if err != nil {
			return err
		}
		switch f.tag {
		case eventTypeField:
			e.deleted = mvccpb.Event_EventType(f.number) == mvccpb.Event_DELETE
		case eventKVField:
			if err := readKeyValue(f.bytes, &e.kv); err != nil {
				return err
			}
		}
	}
	return nil
}
