package etcdsource

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdsource/pages"
)

// streamed is quick for lists in streams.
func streamed(urls ...string) Config {
	cfg := quick(urls...)
	cfg.PageSize = 0
	return cfg
}

// How many services make a list of several parts, more than etcd sends ahead of who reads them.
const (
	manyServices = 60
	paddedTo     = 32 << 10
)

// putMany writes large services, all with one port.
func putMany(t *testing.T, c *clientv3.Client, number int) (revision int64) {
	t.Helper()
	for i := range manyServices {
		revision = put(t, c, spec(fmt.Sprintf("s%02d", i)), port(number)+strings.Repeat(" ", paddedTo))
	}
	return revision
}

func TestAListInOneStreamIsOneSnapshot(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	putMany(t, c, 100)
	m := newMiddleman(t, c)
	parts := 0
	m.hook(func(m *middleman) {
		m.onStream = m.passOn(func(part int) { // all keys change before each part
			if parts++; part < 3 {
				putMany(t, c, 101+part)
			}
		})
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			if isList(req) {
				t.Error("a page was asked for")
			}
			return etcd(req)
		}
	})
	f := follow(t, streamed(m.url))
	f.awaitRevision(t, 1)
	first := f.past()[0]
	if !first.Set || len(first.Services) != manyServices {
		t.Fatalf("first update %+v; want a SET of %d", first, manyServices)
	}
	for _, s := range first.Services {
		if s.Value.Ports[0].Number != 100 {
			t.Errorf("%v has port %d; want 100 as in the revision of the first part", s.Name, s.Value.Ports[0].Number)
		}
	}
	var want string
	for i := range manyServices {
		want += fmt.Sprintf("s%02d:103 ", i)
	}
	f.await(t, want+"| ") // and the watch tells the rest
	if parts < 3 {
		t.Errorf("the list came in %d parts; want several", parts)
	}
}

// It was not there any more when etcd came to the next part. Pages, which get larger each time, end.
func TestACompactionInTheMiddleOfAStreamIsFollowedByPages(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	putMany(t, c, 100)
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) {
		m.onStream = m.passOn(func(part int) {
			if part == 0 {
				if _, err := c.Compact(t.Context(), put(t, c, spec("busy"), port(2))); err != nil {
					t.Error(err)
				}
			}
		})
	})
	f := follow(t, streamed(m.url))
	want := "busy:2 "
	for i := range manyServices {
		want += fmt.Sprintf("s%02d:100 ", i)
	}
	f.await(t, want+"| ")
	m.hook(func(m *middleman) {
		if m.asked != 1 {
			t.Errorf("%d streams were asked for; want 1", m.asked)
		}
	})
}

func TestAMemberWithoutStreamsIsAskedForOneOnce(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	f := follow(t, streamed(m.url))
	f.await(t, "a:1 | ")
	f.resync(t)
	f.resync(t)
	m.hook(func(m *middleman) {
		if m.asked != 1 {
			t.Errorf("%d streams were asked for; want 1 of one connection", m.asked)
		}
	})
}

func TestAPartThatIsTooLargeIsFollowedByPages(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) {
		m.onStream = func(_ *etcdserverpb.RangeRequest, to etcdserverpb.KV_RangeStreamServer) error {
			return to.Send(part(false, &mvccpb.KeyValue{Key: []byte(spec("a")), Value: make([]byte, maxMessage+1)}))
		}
	})
	follow(t, streamed(m.url)).await(t, "a:1 | ")
}

func TestAStreamThatStallsIsFollowedByPages(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) {
		m.onStream = func(_ *etcdserverpb.RangeRequest, to etcdserverpb.KV_RangeStreamServer) error {
			<-to.Context().Done()
			return to.Context().Err()
		}
	})
	cfg := streamed(m.url)
	cfg.RequestTimeout = 200 * time.Millisecond
	follow(t, cfg).await(t, "a:1 | ")
}

// part is one of a stream, the last one if it has a header.
func part(last bool, kvs ...*mvccpb.KeyValue) *etcdserverpb.RangeStreamResponse {
	resp := &etcdserverpb.RangeResponse{Kvs: kvs}
	if last {
		resp.Header = &etcdserverpb.ResponseHeader{ClusterId: 1, Revision: 9}
	}
	return &etcdserverpb.RangeStreamResponse{RangeResponse: resp}
}

func TestAStreamThatNoEtcdSendsIsNoList(t *testing.T) {
	a, b := kv(2, 2, port(1)), kv(3, 3, port(1))
	b.Key = []byte(spec("b"))
	elsewhere := kv(2, 2, port(1))
	elsewhere.Key = []byte("/elsewhere")
	for _, test := range []struct {
		name  string
		parts []*etcdserverpb.RangeStreamResponse
		want  string
	}{
		{"it has no end", []*etcdserverpb.RangeStreamResponse{part(false, a), part(false, b)}, "a list ended before it was complete"},
		{"it has no part", nil, "a list ended before it was complete"},
		{"a part has no keys", []*etcdserverpb.RangeStreamResponse{part(false, a), part(false), part(true)}, "a part of a list has no keys"},
		{"a part is no page", []*etcdserverpb.RangeStreamResponse{{}, part(true, a)}, "a part of a list has no keys"},
		{"it goes on after its end", []*etcdserverpb.RangeStreamResponse{part(true, a), part(true, b)}, "a part of a list has no keys, or comes after its end"},
		{"a key comes twice", []*etcdserverpb.RangeStreamResponse{part(false, a), part(true, a)}, "this is no answer of an etcd"},
		{"the keys are not in order", []*etcdserverpb.RangeStreamResponse{part(true, b, a)}, "this is no answer of an etcd"},
		{"a key is not of the registry", []*etcdserverpb.RangeStreamResponse{part(true, elsewhere)}, "this is no answer of an etcd"},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := newMiddleman(t, etcdtest.StartProcess(t).Client(t))
			m.hook(func(m *middleman) {
				m.onStream = func(_ *etcdserverpb.RangeRequest, to etcdserverpb.KV_RangeStreamServer) error {
					for _, p := range test.parts {
						if err := to.Send(p); err != nil {
							return err
						}
					}
					return nil
				}
			})
			f := follow(t, streamed(m.url))
			f.awaitStatus(t, "a reason", func(st config.Status) bool { return strings.Contains(st.Reason, test.want) })
			if got := f.text(); got != "nothing yet" {
				t.Errorf("sent %q", got)
			}
		})
	}
}

// FuzzPart: two parts, read one after the other, say what the library reads in them, but for those with several pages.
func FuzzPart(f *testing.F) {
	one := wire(f, part(true, kv(2, 2, port(1))))
	for _, message := range [][]byte{one, wire(f, part(false)), append(one, one...), one[:len(one)-1], []byte("\x0a\x00"), []byte("\x12\x00"), []byte("\x08\x05"), []byte("\x0a\x05\x12\x00")} {
		f.Add(one, message)
		f.Add(message, one)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		p := pages.NewReader()
		for _, message := range [][]byte{first, second} {
			got, want := new(etcdserverpb.RangeStreamResponse), new(etcdserverpb.RangeStreamResponse)
			err, wantErr := p.Unmarshal(mem.BufferSlice{mem.SliceBuffer(message)}, got), proto.Unmarshal(message, want)
			if err != nil && strings.Contains(err.Error(), "two pages") {
				continue
			}
			if (err == nil) != (wantErr == nil) || err == nil && !proto.Equal(got, want) {
				t.Errorf("%q is read as %v, %v; want %v, %v", message, got, err, want, wantErr)
			}
		}
	})
}
