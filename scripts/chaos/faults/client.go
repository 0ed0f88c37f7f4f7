package faults

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// The users while authentication is on. Without it, etcd ignores them.
const (
	rootUser, rootPassword   = "root", "root's password"
	proxyUser, proxyPassword = "proxy", "the proxy's password"
)

// Dial returns a client of these members that logs in as root, until ctx ends. At least one member must answer within two seconds. The
// client connects again soon after a failure, because gRPC's own pauses would be counted as etcd's.
func Dial(ctx context.Context, addrs ...string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Context:     ctx,
		Endpoints:   addrs,
		DialTimeout: 2 * time.Second,
		Username:    rootUser,
		Password:    rootPassword,
		Logger:      zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 10 * time.Millisecond, Multiplier: 1.5, Jitter: 0.2, MaxDelay: 100 * time.Millisecond},
			MinConnectTimeout: time.Second,
		})},
	})
	if err != nil {
		return nil, fmt.Errorf("client for %v: %w", addrs, err)
	}
	return c, nil
}
