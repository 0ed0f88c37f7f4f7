package etcdsource

import (
	"fmt"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/etcdsource/pages"
	"kubeproxy/config/records"
	"kubeproxy/registry/decode"
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
func readAs(p *pages.Reader, page []byte) (*etcdserverpb.RangeResponse, error) {
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
		[]byte("\x12\x04\x0b\x08\x01\x0c\x93\x01\x08\x01\x94\x01"), // groups, which no message has
		[]byte("\x10\x05\x1a\x01a\x20\x81\x00"),                    // a key-value that is a number, and more
		[]byte("\x12\x05\x0a\x01a\x0a\x00"),                        // a key twice, the second one empty
	} {
		f.Add(empty, page)
		f.Add(page, three)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p := pages.NewReader()
		for _, page := range [][]byte{first, second} {
			got, err := readAs(p, page)
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
	p := pages.NewReader()
	if _, err := readAs(p, page[:len(page)-1]); err == nil || err.Error() != "a page of a list, near key 1 of it: unexpected EOF" {
		t.Errorf("a page that was cut off: %v", err)
	}
	page[len(page)-len(port(1))-1]++ // the length of the last value
	if _, err := readAs(p, page); err == nil || err.Error() != "a page of a list, near key 2 of it: unexpected EOF" {
		t.Errorf("a value that is longer than its page: %v", err)
	}
}

// What is news stays what it was, though the next page is read where it lay.
func TestNothingThatIsKeptOfAPageLiesInThePageReader(t *testing.T) {
	s := records.New(decode.Decoder{})
	s.Put(events.VersionOf(kv(2, 2, port(1))))
	l := s.NewList(0)
	p := pages.NewReader()
	for i := range 3 {
		known, news := kv(2, 2, port(1)), kv(5, 5, port(10+i))
		news.Key = []byte(spec(fmt.Sprint("b", i)))
		answer, err := readAs(p, wire(t, &etcdserverpb.RangeResponse{Kvs: []*mvccpb.KeyValue{known, news}}))
		if err != nil {
			t.Fatal(err)
		}
		l.Add(versionsOf(answer.Kvs))
	}
	if len(l.News()) != 3 || l.Len() != 6 {
		t.Fatalf("%d news of %d; want 3 of 6", len(l.News()), l.Len())
	}
	for i, v := range l.News() {
		if string(v.Key) != spec(fmt.Sprint("b", i)) || string(v.Value) != port(10+i) {
			t.Errorf("news %d is %s: %s", i, v.Key, v.Value)
		}
	}
}

// However many keys it has: a resync of 10,000 services would else leave 10 MB behind.
func TestAPageOfKnownKeysLeavesHardlyAnyGarbage(t *testing.T) {
	s := records.New(decode.Decoder{})
	l, kvs := bigList(250)
	s.Merge(l, 501, nil, 0)
	page := wire(t, &etcdserverpb.RangeResponse{Kvs: kvs})
	p := pages.NewReader()
	if n := testing.AllocsPerRun(10, func() {
		answer, err := readAs(p, page)
		if err != nil {
			t.Fatal(err)
		}
		l := s.NewList(500)
		if l.Add(versionsOf(answer.Kvs)); len(l.News()) != 0 || l.Len() != 500 {
			t.Fatal(len(l.News()), l.Len())
		}
	}); n > 20 {
		t.Errorf("%v allocations for 500 keys", n)
	}
}

// versionsOf is what a list is given of a page.
func versionsOf(kvs []*mvccpb.KeyValue) []records.Version {
	page := make([]records.Version, len(kvs))
	for i, kv := range kvs {
		page[i] = events.VersionOf(kv)
	}
	return page
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
	f.awaitStatus(t, "a reason", func(st config.Status) bool { return strings.Contains(st.Reason, "watch and list are of two clusters") })
	if got := f.text(); got != "nothing yet" {
		t.Errorf("sent %q", got)
	}
}
