package etcdsource

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"kubeproxy/config/etcdsource/etcdtest"
)

// wire gives an answer as etcd sends it.
func wire(t testing.TB, answer proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// readAs gives a page to a reader in two pieces, as gRPC does in many.
func (p *pageReader) readAs(page []byte) (*etcdserverpb.RangeResponse, error) {
	answer := new(etcdserverpb.RangeResponse)
	half := len(page) / 2
	return answer, p.Unmarshal(mem.BufferSlice{mem.SliceBuffer(page[:half]), mem.SliceBuffer(page[half:])}, answer)
}

// FuzzPage: two pages, read one after the other, say what the library reads in them.
func FuzzPage(f *testing.F) {
	header := &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: 1 << 63, Revision: 9, RaftTerm: 2}
	full := &mvccpb.KeyValue{Key: []byte("/a"), CreateRevision: 2, ModRevision: 300, Version: 1 << 40, Value: []byte("{}"), Lease: -1}
	empty := wire(f, new(etcdserverpb.RangeResponse))
	one := wire(f, &etcdserverpb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{full}, More: true, Count: 7})
	three := wire(f, &etcdserverpb.RangeResponse{Header: header, Kvs: []*mvccpb.KeyValue{{}, {Value: []byte("x")}, full}, Count: 3})
	for _, page := range [][]byte{
		one, three, append(one, three...), three[:len(three)-3],
		[]byte("\x12\x00"),         // a key-value without a field
		[]byte("\x12\x02\x10\x80"), // a number without an end
		[]byte("\x12\x02\x09a"),    // a key of another type
		[]byte("\x12\x04\x0b\x08\x01\x0c\x93\x01\x08\x01\x94\x01"), // groups, known to nobody
		[]byte("\x10\x05\x1a\x01a\x20\x81\x00"),                    // a key-value that is a number, and more
		[]byte("\x12\x05\x0a\x01a\x0a\x00"),                        // a key twice, the second one empty
	} {
		f.Add(empty, page)
		f.Add(page, three)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p := newPageReader()
		for _, page := range [][]byte{first, second} {
			got, err := p.readAs(page)
			want := new(etcdserverpb.RangeResponse)
			wantErr := proto.Unmarshal(page, want)
			if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
				t.Errorf("%q is read as %v, %v; want %v, %v", page, got, err, want, wantErr)
			}
		}
	})
}

func TestABadPageIsAnErrorThatTellsWhere(t *testing.T) {
	page := wire(t, &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{kv(2, 2, port(1)), kv(3, 3, port(1))}})
	p := newPageReader()
	if _, err := p.readAs(page[:len(page)-1]); err == nil || err.Error() != "a page of a list, near key 1 of it: unexpected EOF" {
		t.Errorf("a page that was cut off: %v", err)
	}
	page[len(page)-len(port(1))-1]++ // the length of the last value
	if _, err := p.readAs(page); err == nil || err.Error() != "a page of a list, near key 2 of it: unexpected EOF" {
		t.Errorf("a value that is longer than its page: %v", err)
	}
}

// What is news stays what it was, though the next page is read where it lay.
func TestNothingThatIsKeptOfAPageLiesInIt(t *testing.T) {
	r := newRecords()
	r.put(kv(2, 2, port(1)))
	var l listing
	p := newPageReader()
	for i := range 3 {
		known, news := kv(2, 2, port(1)), kv(5, 5, port(10+i))
		news.Key = []byte(spec(fmt.Sprint("b", i)))
		answer, err := p.readAs(wire(t, &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{known, news}}))
		if err != nil {
			t.Fatal(err)
		}
		l.kvs = append(l.kvs, r.sift(answer.Kvs, &l.known)...)
	}
	if len(l.kvs) != 3 || len(l.known) != 3 {
		t.Fatalf("%d news, %d known; want 3 of each", len(l.kvs), len(l.known))
	}
	for i, kv := range l.kvs {
		if string(kv.Key) != spec(fmt.Sprint("b", i)) || string(kv.Value) != port(10+i) {
			t.Errorf("news %d is %v", i, kv)
		}
	}
}

// However many keys it has: a resync of 10,000 services would else leave 10 MB behind.
func TestAPageOfKnownKeysLeavesHardlyAnyGarbage(t *testing.T) {
	r, l := newRecords(), bigList(250)
	r.merge(l, nil, 0)
	page := wire(t, &etcdserverpb.RangeResponse{Kvs: l.kvs})
	known := make([]familiar, 0, len(l.kvs))
	p := newPageReader()
	if n := testing.AllocsPerRun(10, func() {
		known = known[:0]
		answer, err := p.readAs(page)
		if err != nil || len(r.sift(answer.Kvs, &known)) != 0 || len(known) != 500 {
			t.Fatal(err, len(known))
		}
	}); n > 20 {
		t.Errorf("%v allocations for 500 keys", n)
	}
}

func TestAListWithoutAHeaderIsRefused(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			resp, err := etcd(req)
			if err == nil {
				resp.Header = nil
			}
			return resp, err
		}
	})
	f := follow(t, quick(m.url))
	f.awaitStatus(t, "a reason", func(st Status) bool { return strings.Contains(st.Reason, "watch and list are of two clusters") })
	if got := f.text(); got != "nothing yet" {
		t.Errorf("sent %q", got)
	}
}
