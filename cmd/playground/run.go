package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"golang.org/x/sync/errgroup"

	"kubeproxy/cmd/internal/metrics"
	"kubeproxy/cmd/internal/node"
	"kubeproxy/cmd/internal/operators"
	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/filesource"
	"kubeproxy/proxy"
	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// run runs the playground until ctx ends, and leaves nothing behind.
func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "playground-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	etcd, err := startEtcd(ctx, dir, defaultEtcd)
	if err != nil {
		return err
	}
	defer etcd.Close() // last: the proxy watches it to its end

	l, err := prepare(ctx, etcd)
	if err != nil {
		return err
	}
	l.records = filepath.Join(dir, "records")
	files, err := openRecords(l.records)
	if err != nil {
		return err
	}
	cfg := etcdsource.Config{Endpoints: []string{"http://" + l.etcd}}
	source, err := etcdsource.New(cfg)
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		select {
		case err := <-etcd.Err():
			return fmt.Errorf("etcd: %w", err)
		case <-ctx.Done():
			return nil
		}
	})
	for _, s := range l.services() {
		for _, b := range s.backends {
			g.Go(func() error { return b.serve(ctx) })
		}
	}
	g.Go(func() error {
		return node.Run(ctx, node.Options{
			Sources: []config.Source{source, files},
			Proxy: proxy.Config{
				Config: engine.Config{
					BindAddress: netip.MustParseAddr("127.0.0.1"), // not offered to other machines
				},
				DrainTimeout: time.Second,
				EtcdPorts:    cfg.LocalPorts(ctx),
			},
			Ready:            func() { l.print(out) },
			Operators:        operators.Config{Metrics: netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), uint16(l.operators))},
			MetricsEndpoints: metrics.Choice{All: true},
		})
	})
	return g.Wait()
}

// openRecords makes an empty registry of files in dir, and the source that reads it.
func openRecords(dir string) (*filesource.Source, error) {
	for _, prefix := range []string{registry.SpecsPrefix, registry.EndpointsPrefix} {
		if err := os.MkdirAll(filepath.Join(dir, prefix), 0o700); err != nil {
			return nil, err
		}
	}
	return filesource.New(filesource.Config{Dir: dir})
}

// prepare opens the demo services and writes their records. Once the proxy has read those, all is there.
func prepare(ctx context.Context, etcd *embed.Etcd) (*lesson, error) {
	l := &lesson{etcd: etcd.Clients[0].Addr().String()}
	var err error
	if l.web, err = openService("web", "http", 8100); err != nil {
		return nil, err
	}
	if l.echo, err = openService("echo", "tcp", 8101); err != nil {
		return nil, err
	}
	if l.ping, err = openService("ping", "udp", 8102); err != nil {
		return nil, err
	}
	if l.more, err = freePort("tcp", 8103); err != nil { // for the reader to open
		return nil, err
	}
	if l.operators, err = freePort("tcp", 8104); err != nil {
		return nil, err
	}
	if l.filed, err = freePort("tcp", 8105); err != nil { // likewise
		return nil, err
	}
	client := v3client.New(etcd.Server)
	defer client.Close()
	for _, s := range l.services() {
		for _, r := range s.records() {
			if _, err := client.Put(ctx, r.key, r.value); err != nil {
				return nil, fmt.Errorf("put %s: %w", r.key, err)
			}
		}
	}
	return l, nil
}
