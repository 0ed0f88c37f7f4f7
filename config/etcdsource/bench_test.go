package etcdsource

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/etcdsource/pages"
	"kubeproxy/config/records"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// What a resync does with one page of keys that are all known, beside what it would do if the library read it.
func BenchmarkKnownPage500(b *testing.B) {
	s := records.New(decode.Decoder{})
	first, kvs := bigList(250)
	s.Merge(first, 501, nil, 0)
	page := wire(b, &etcdserverpb.RangeResponse{Kvs: kvs, Count: 500})
	versions := make([]records.Version, 0, 500)
	for _, way := range []struct {
		name  string
		codec encoding.CodecV2
	}{{"in place", pages.NewReader()}, {"copied", pages.NewReader().CodecV2}} {
		b.Run(way.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				var answer etcdserverpb.RangeResponse
				if err := way.codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(page)}, &answer); err != nil {
					b.Fatal(err)
				}
				versions = versions[:0]
				for _, kv := range answer.Kvs {
					versions = append(versions, events.VersionOf(kv))
				}
				l := s.NewList(500)
				if l.Add(versions); len(l.News()) != 0 || l.Len() != 500 {
					b.Fatalf("%d news of %d", len(l.News()), l.Len())
				}
			}
		})
	}
}

// A tape is a watch stream that says the same things over and over.
type tape struct {
	etcdserverpb.Watch_WatchClient
	lines []mem.BufferSlice
	next  int
	said  chan struct{} // for each message: else several would become one Update
}

// Recv implements Watch_WatchClient, as gRPC does.
func (t *tape) Recv() (*etcdserverpb.WatchResponse, error) {
	if t.next++; t.next > 1 {
		if _, ok := <-t.said; !ok {
			return nil, errTorn
		}
	}
	m := new(etcdserverpb.WatchResponse)
	return m, encoding.GetCodecV2(grpcproto.Name).Unmarshal(t.lines[t.next%len(t.lines)], m)
}

// From the bytes of a watch response with one event, other endpoints for a service, to the Update that tells of it.
func BenchmarkEventToUpdate(b *testing.B) {
	x := standing(b)
	out := make(chan registry.Update, 1)
	x.out = out
	first, _ := bigList(1)
	x.records.Merge(first, 1, nil, 0)
	x.records.Update(true, 1, time.Now())
	stream := &tape{said: make(chan struct{})}
	for i := range 2 {
		stream.lines = append(stream.lines, mem.BufferSlice{mem.SliceBuffer(wire(b, &etcdserverpb.WatchResponse{
			Header: &etcdserverpb.ResponseHeader{ClusterId: 1 << 63, MemberId: 1 << 62, Revision: 1e6, RaftTerm: 2},
			Events: []*mvccpb.Event{{Kv: &mvccpb.KeyValue{
				Key: []byte(ends("service-00000")), CreateRevision: 2, ModRevision: 1e6, Version: 1e5,
				Value: []byte(addrs(fmt.Sprintf("10.244.1.%d:80", i), "10.244.2.1:80", "10.244.3.1:80")),
			}}},
		}))})
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = x.watch.receive(ctx, stream, func() {}) }) // ends with the context
	defer wg.Wait()
	defer close(stream.said)
	defer cancel()
	b.ReportAllocs()
	for b.Loop() {
		x.applied = 1 // or else the event would be known
		<-x.watch.inbox.ready
		if err := x.receive(x.watch.inbox.take()); err != nil {
			b.Fatal(err)
		}
		stream.said <- struct{}{}
		if u := <-out; len(u.Endpoints) != 1 {
			b.Fatal(u)
		}
	}
}

// From the call that writes a service to the Update that tells of it, with a real etcd beside this process. The
// write itself is in it: what it takes alone is reported beside.
func BenchmarkPutToUpdate(b *testing.B) {
	etcd := etcdtest.StartProcess(b)
	c := etcd.Client(b)
	s, err := New(Config{Endpoints: []string{etcd.URL()}})
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan registry.Update)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx, out) }) // returns nil
	defer wg.Wait()
	defer cancel()
	<-out // the first SET
	var writing time.Duration
	n := 0
	for b.Loop() {
		n++
		start := time.Now()
		done := make(chan struct{})
		go func() {
			put(b, c, spec("a"), port(1+n%60000))
			writing += time.Since(start)
			close(done)
		}()
		for u := range out {
			if !u.Set {
				break
			}
		}
		<-done
	}
	b.ReportMetric(float64(writing.Microseconds())/float64(n), "µs/put")
}

// A full list of 10,000 keys over a real connection, until the SET is out.
func BenchmarkResync10000(b *testing.B) {
	etcd := etcdtest.StartProcess(b)
	c := etcd.Client(b)
	for _, r := range recordstest.Registry(5000) {
		put(b, c, r.Key, r.Value)
	}
	s, err := New(Config{Endpoints: []string{etcd.URL()}, SyncPeriod: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	out := make(chan registry.Update)
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Run(ctx, out) }) // returns nil
	defer wg.Wait()
	defer cancel()
	if u := <-out; len(u.Services) != 5000 {
		b.Fatalf("first SET has %d services", len(u.Services))
	}
	for b.Loop() {
		s.Resync()
		<-out
	}
}
