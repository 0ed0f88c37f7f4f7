//go:build linux

package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/apiserver"
	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// startAPIServer starts an API server between etcd and the fleet, at an address or, without one, at one that is free, and gives its URL.
func (l *lab) startAPIServer(addr string) (url string, err error) {
	defer try.Catch(&err)
	if addr == "" {
		addr = fmt.Sprintf("127.0.0.1:%d", try.Get(process.FreePorts(6000, 10000, 1)))
	}
	l.through = try.Get(process.Start(l.site.Dir, "api-server", l.site.Executable, "api-server", l.etcd.URL(), addr))
	l.restart = func() error {
		_, err := l.startAPIServer(addr)
		return err
	}
	return "http://" + addr, l.through.Await(10*time.Second, func() bool {
		conn, err := net.DialTimeout("tcp", addr, time.Second)
		return err == nil && conn.Close() == nil
	})
}

// runAPIServer is the process of the API server. It answers as Kubernetes 1.36 does, over HTTP/1.1 and without TLS, and keeps what it serves in
// memory: at etcd it has one watch, however many follow it. Its versions are etcd's revisions. It runs until it is killed.
func runAPIServer(etcd, addr string) (err error) {
	defer try.Catch(&err)
	try.Get(measure.RaiseDescriptorLimit())
	c := try.Get(measure.NewEtcdClient(etcd))
	defer c.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	server, follow := try.Get2(mirror(ctx, c))
	followed := make(chan error, 1)
	go func() { followed <- follow() }()
	answered := make(chan error, 1)
	go func() { answered <- http.ListenAndServe(addr, server) }()
	select {
	case err = <-followed:
	case err = <-answered:
	}
	return err
}

// mirror returns an API server with what is in etcd, and what has it follow etcd from there until ctx ends.
func mirror(ctx context.Context, c *clientv3.Client) (server *apiserver.Server, follow func() error, err error) {
	defer try.Catch(&err)
	server = apiserver.New(apiserver.V1)
	all := try.Get(c.Get(ctx, registry.Prefix, clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortAscend)))
	for _, kv := range all.Kvs {
		try.Do(serve(server, string(kv.Key), kv.Value, kv.ModRevision))
	}
	server.AtVersion(all.Header.Revision, func() {})
	return server, func() (err error) {
		defer try.Catch(&err)
		for r := range c.Watch(ctx, registry.Prefix, clientv3.WithPrefix(), clientv3.WithRev(all.Header.Revision+1)) {
			try.Do(r.Err())
			for _, ev := range r.Events {
				if ev.Type != clientv3.EventTypePut {
					return fmt.Errorf("%s was deleted", ev.Kv.Key) // which no step does
				}
				try.Do(serve(server, string(ev.Kv.Key), ev.Kv.Value, ev.Kv.ModRevision))
			}
		}
		return errors.New("the watch has ended")
	}, nil
}

// serve has the server serve a record as of a revision.
func serve(server *apiserver.Server, key string, value []byte, revision int64) error {
	record, _, err := decode.Decode(key, value)
	if err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	server.AtVersion(revision, func() {
		switch {
		case record.Service != nil:
			server.PutService(record.Service.Name.Namespace, record.Service.Name.Name, int(record.Service.Ports[0].Number))
		case record.Endpoints != nil:
			var addrs []string
			for addr := range record.Endpoints.Of("").All() {
				addrs = append(addrs, addr.String())
			}
			server.PutEndpoints(record.Endpoints.Name.Namespace, record.Endpoints.Name.Name, addrs...)
		}
	})
	return nil
}
