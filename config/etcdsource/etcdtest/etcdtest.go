package etcdtest

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// The ports of every etcd lie between these: below the range that kernels take the ports of outgoing connections from
// (32768 and up on Linux), so that none of those occupies one while a test has its etcd stopped.
const (
	lowPort  = 20000
	highPort = 32000
)

func newClient(t testing.TB, url string, edits ...func(*clientv3.Config)) *clientv3.Client {
	t.Helper()
	cfg := clientv3.Config{Endpoints: []string{url}, DialTimeout: 10 * time.Second, Logger: zap.NewNop()}
	for _, edit := range edits {
		edit(&cfg)
	}
	c, err := clientv3.New(cfg)
	if err != nil {
		t.Fatalf("client for %v: %v", cfg.Endpoints, err)
	}
	t.Cleanup(func() { _ = c.Close() }) // only tells that its context has ended
	return c
}

// EnableAuth turns authentication on: user root with the given password may do everything, the
// other user may read and watch below prefix. The client must be one without a user.
func EnableAuth(t testing.TB, c *clientv3.Client, rootPassword, user, password, prefix string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	try := func(what string, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	_, err := c.RoleAdd(ctx, "root")
	try("add role root", err)
	_, err = c.UserAdd(ctx, "root", rootPassword)
	try("add user root", err)
	_, err = c.UserGrantRole(ctx, "root", "root")
	try("grant root", err)
	_, err = c.RoleAdd(ctx, "reader")
	try("add role reader", err)
	_, err = c.RoleGrantPermission(ctx, "reader", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermRead))
	try("grant read", err)
	_, err = c.UserAdd(ctx, user, password)
	try("add user", err)
	_, err = c.UserGrantRole(ctx, user, "reader")
	try("grant reader", err)
	_, err = c.AuthEnable(ctx)
	try("enable authentication", err)
}
