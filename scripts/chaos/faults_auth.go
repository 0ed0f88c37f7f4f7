package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

func init() {
	faults = append(faults,
		fault{name: "auth", about: "authentication is turned on, tokens of 5 s expire, members forget them, and it is turned off", login: true, inject: auth})
}

// auth is a cluster that is being secured while it is in use. The proxy has a user from the start, whom
// nobody asks for until authentication is on. Tokens live for five seconds after their last use,
// and only in the memory of the member that gave them: old connections have none, new ones log in, and
// a restart forgets all.
func auth(ctx context.Context, c *cluster, r *rand.Rand) error {
	length, changes := between(r, 5500*time.Millisecond, 8*time.Second), r.IntN(20)
	renewed, restarted := r.IntN(2) == 0, r.IntN(2) == 0
	c.stage.logf("authentication on for %v; new connections first: %t; then a restart: %t", length, renewed, restarted)
	if err := c.enableAuth(ctx); err != nil {
		return err
	}
	if renewed {
		c.each(func(b *faultProxy) { b.cut(all) })
	}
	err := firstError(c.stage.write(ctx, changes), sleep(ctx, length))
	if err == nil && restarted {
		m := c.members[r.IntN(len(c.members))]
		m.Kill()
		err = c.start(ctx)
	}
	if err == nil {
		err = c.stage.write(ctx, changes)
	}
	return firstError(err, c.disableAuth(ctx))
}

// enableAuth makes the users, unless they exist, and demands that clients be one of them: root may do
// everything, the proxy may read the registry and nothing else.
func (c *cluster) enableAuth(ctx context.Context) error {
	return c.do(ctx, "turn authentication on", func(ctx context.Context, client *clientv3.Client) error {
		steps := []func() error{
			func() error { _, err := client.RoleAdd(ctx, "root"); return err },
			func() error { _, err := client.UserAdd(ctx, rootUser, rootPassword); return err },
			func() error { _, err := client.UserGrantRole(ctx, rootUser, "root"); return err },
			func() error { _, err := client.RoleAdd(ctx, "reader"); return err },
			func() error {
				_, err := client.RoleGrantPermission(ctx, "reader", registry.Prefix, clientv3.GetPrefixRangeEnd(registry.Prefix),
					clientv3.PermissionType(clientv3.PermRead))
				return err
			},
			func() error { _, err := client.UserAdd(ctx, proxyUser, proxyPassword); return err },
			func() error { _, err := client.UserGrantRole(ctx, proxyUser, "reader"); return err },
			func() error { _, err := client.AuthEnable(ctx); return err },
		}
		for _, step := range steps {
			if err := step(); err != nil && !errors.Is(err, rpctypes.ErrRoleAlreadyExist) && !errors.Is(err, rpctypes.ErrUserAlreadyExist) {
				return err
			}
		}
		return nil
	})
}

// disableAuth has etcd ask nobody for a user any more. It may be off already.
func (c *cluster) disableAuth(ctx context.Context) error {
	return c.do(ctx, "turn authentication off", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.AuthDisable(ctx)
		return err
	})
}
