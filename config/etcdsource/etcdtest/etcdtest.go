package etcdtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// freePort finds a TCP port on 127.0.0.1 that nobody listens on. It looks below the range that
// kernels take the ports of outgoing connections from (32768 and up on Linux), so that none of
// those occupies the port while a test has its etcd stopped.
func freePort() (int, error) {
	for range 1000 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 20000 and 32000")
}

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
