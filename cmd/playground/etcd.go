package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// defaultEtcd is where our etcd listens if it can: etcd's own port, so that etcdctl finds it.
const defaultEtcd = "127.0.0.1:2379"

// etcdName is the name of our etcd as a member of its cluster of one. put and del look for it.
const etcdName = "playground"

// startEtcd starts an etcd inside this process, with its data in dir. When the address is taken it
// listens on another port of 127.0.0.1.
func startEtcd(ctx context.Context, dir, addr string) (*embed.Etcd, error) {
	cfg := embed.NewConfig()
	cfg.Name = etcdName
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.UnsafeNoFsync = true // nothing here needs to survive
	here := func(host string) []url.URL { return []url.URL{{Scheme: "http", Host: host}} }
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = here(addr), here(addr)
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = here("127.0.0.1:0"), here("127.0.0.1:0") // it has no peers
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)

	etcd, err := embed.StartEtcd(cfg)
	if errors.Is(err, syscall.EADDRINUSE) {
		cfg.ListenClientUrls, cfg.AdvertiseClientUrls = here("127.0.0.1:0"), here("127.0.0.1:0")
		etcd, err = embed.StartEtcd(cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	etcd.Close()
	return nil, fmt.Errorf("start etcd: %w", err)
}

// requestTimeout bounds what one of the commands below asks of etcd.
const requestTimeout = 5 * time.Second

// onEtcd makes a command of something that is done to an etcd, and whose result is printed.
func onEtcd(do func(context.Context, *clientv3.Client, []string) (string, error)) func(context.Context, options, []string) error {
	return func(ctx context.Context, o options, args []string) error {
		// clientv3 would go on trying to connect until the time is up, and not say why it could not.
		probe, err := net.DialTimeout("tcp", o.etcd, requestTimeout)
		if err != nil {
			return fmt.Errorf("etcd at %s: %w (does the playground run?)", o.etcd, err)
		}
		probe.Close()
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{o.etcd}, Logger: zap.NewNop()})
		if err != nil {
			return fmt.Errorf("etcd at %s: %w", o.etcd, err)
		}
		defer c.Close()
		result, err := do(ctx, c, args)
		if err != nil {
			return fmt.Errorf("etcd at %s: %w", o.etcd, err)
		}
		fmt.Println(result)
		return nil
	}
}

// put stores a value.
func put(ctx context.Context, c *clientv3.Client, args []string) (string, error) {
	if err := checkOurs(ctx, c); err != nil {
		return "", err
	}
	r, err := c.Put(ctx, args[0], args[1])
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("put %s at revision %d", args[0], r.Header.Revision), nil
}

// del deletes a key.
func del(ctx context.Context, c *clientv3.Client, args []string) (string, error) {
	if err := checkOurs(ctx, c); err != nil {
		return "", err
	}
	r, err := c.Delete(ctx, args[0])
	switch {
	case err != nil:
		return "", err
	case r.Deleted == 0:
		return "", errors.New("no such key: " + args[0])
	}
	return fmt.Sprintf("deleted %s at revision %d", args[0], r.Header.Revision), nil
}

// get gives one value or, for a key that ends in a slash, all keys below it and their values.
func get(ctx context.Context, c *clientv3.Client, args []string) (string, error) {
	key, many := args[0], strings.HasSuffix(args[0], "/")
	var opts []clientv3.OpOption
	if many {
		opts = append(opts, clientv3.WithPrefix())
	}
	r, err := c.Get(ctx, key, opts...)
	switch {
	case err != nil:
		return "", err
	case len(r.Kvs) == 0:
		return "", errors.New("no such key: " + key)
	case !many:
		return string(r.Kvs[0].Value), nil
	}
	var lines []string
	for _, kv := range r.Kvs {
		lines = append(lines, string(kv.Key), "    "+string(kv.Value))
	}
	return strings.Join(lines, "\n"), nil
}

// checkOurs refuses an etcd that is not a playground's: its data may be needed.
func checkOurs(ctx context.Context, c *clientv3.Client) error {
	r, err := c.MemberList(ctx)
	if err != nil {
		return err
	}
	for _, m := range r.Members {
		if m.Name != etcdName {
			return fmt.Errorf("its name is %q, so it is no playground's etcd: nothing was changed", m.Name)
		}
	}
	return nil
}
