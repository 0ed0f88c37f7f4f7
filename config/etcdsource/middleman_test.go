package etcdsource

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// A middleman is a member that speaks etcd's protocol and asks a real etcd for every answer, except
// where a test tells it to lie, to lag, or to hold its tongue.
type middleman struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedWatchServer
	url string
	ctx context.Context

	mu       sync.Mutex // guards the fields below, and is held while a hook runs
	kv       etcdserverpb.KVClient
	watch    etcdserverpb.WatchClient
	onStream func(*etcdserverpb.RangeRequest, etcdserverpb.KV_RangeStreamServer) error // nil: it is of a release before 3.7
	asked    int                                                                       // for streams
	onRange  func(*etcdserverpb.RangeRequest, answerer) (*etcdserverpb.RangeResponse, error)
	onEvents func(*etcdserverpb.WatchResponse) bool // false: it is not passed on
	onAsk    func(*etcdserverpb.WatchRequest) bool
	streams  map[chan<- *etcdserverpb.WatchResponse]struct{}
}

// An answerer asks the real etcd.
type answerer func(*etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error)

func newMiddleman(t *testing.T, c *clientv3.Client) *middleman {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	m := &middleman{
		url:     "http://" + listener.Addr().String(),
		ctx:     t.Context(),
		kv:      etcdserverpb.NewKVClient(c.ActiveConnection()),
		watch:   etcdserverpb.NewWatchClient(c.ActiveConnection()),
		streams: make(map[chan<- *etcdserverpb.WatchResponse]struct{}),
	}
	server := grpc.NewServer()
	etcdserverpb.RegisterKVServer(server, m)
	etcdserverpb.RegisterWatchServer(server, m)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(listener) }) // ends with Stop
	t.Cleanup(func() {
		server.Stop()
		wg.Wait()
	})
	return m
}

// hook sets the hooks, or looks at what they have written, while none of them runs.
func (m *middleman) hook(edit func(*middleman)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	edit(m)
}

// cancel has every open watch stream say that its watch was cancelled.
func (m *middleman) cancel(reason string, compacted int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s := range m.streams {
		s <- &etcdserverpb.WatchResponse{
			Header: new(etcdserverpb.ResponseHeader), Canceled: true, CancelReason: reason, CompactRevision: compacted,
		}
	}
}

// Range implements etcd's KV service.
func (m *middleman) Range(_ context.Context, req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.onRange == nil {
		return m.ask(req)
	}
	return m.onRange(req, m.ask)
}

// RangeStream implements etcd's KV service.
func (m *middleman) RangeStream(req *etcdserverpb.RangeRequest, to etcdserverpb.KV_RangeStreamServer) error {
	m.mu.Lock()
	m.asked++
	answer := m.onStream
	m.mu.Unlock()
	if answer == nil {
		return m.UnimplementedKVServer.RangeStream(req, to)
	}
	return answer(req, to)
}

// passOn passes the parts of a stream on, and calls before with the number of each of them.
func (m *middleman) passOn(before func(part int)) func(*etcdserverpb.RangeRequest, etcdserverpb.KV_RangeStreamServer) error {
	return func(req *etcdserverpb.RangeRequest, to etcdserverpb.KV_RangeStreamServer) error {
		from, err := m.kv.RangeStream(to.Context(), req)
		for n := 0; err == nil; n++ {
			var part *etcdserverpb.RangeStreamResponse
			if part, err = from.Recv(); errors.Is(err, io.EOF) {
				return nil
			} else if err == nil {
				before(n)
				err = to.Send(part)
			}
		}
		return err
	}
}

// ask is the answerer.
func (m *middleman) ask(req *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	return m.kv.Range(m.ctx, req)
}

// Watch implements etcd's Watch service.
func (m *middleman) Watch(client etcdserverpb.Watch_WatchServer) error {
	own := make(chan *etcdserverpb.WatchResponse, 16)
	m.mu.Lock()
	watch := m.watch
	m.streams[own] = struct{}{}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.streams, own)
	}()

	etcd, err := watch.Watch(client.Context())
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, cancel := context.WithCancel(client.Context())
	defer cancel()
	wg.Go(func() {
		for {
			req, err := client.Recv()
			if err != nil {
				return
			}
			m.mu.Lock()
			pass := m.onAsk == nil || m.onAsk(req)
			m.mu.Unlock()
			if pass && etcd.Send(req) != nil {
				return
			}
		}
	})
	theirs := make(chan *etcdserverpb.WatchResponse)
	wg.Go(func() {
		defer close(theirs)
		for {
			resp, err := etcd.Recv()
			if err != nil {
				return
			}
			select {
			case theirs <- resp:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		var resp *etcdserverpb.WatchResponse
		select {
		case resp = <-own:
		case resp = <-theirs:
			if resp == nil {
				return client.Context().Err()
			}
			m.mu.Lock()
			pass := m.onEvents == nil || m.onEvents(resp)
			m.mu.Unlock()
			if !pass {
				continue
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := client.Send(resp); err != nil {
			return err
		}
	}
}
