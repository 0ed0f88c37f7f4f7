package faults

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
	all = append(all,
		Fault{Name: "auth", About: "authentication is turned on, tokens of 5 s expire, members forget them, and it is turned off", login: true, inject: auth})
}

// auth is a cluster that is secured while it is in use. The proxy has a user from the start, which etcd ignores until authentication is on.
// A token expires five seconds after its last use, and only the member that issued it has it in memory. So old connections have none, new
// ones log in, and a restart forgets all.
func auth(ctx context.Context, c Target, r *rand.Rand) error {
	length, changes := between(r, 5500*time.Millisecond, 8*time.Second), r.IntN(20)
	renewed, restarted := r.IntN(2) == 0, r.IntN(2) == 0
	c.Logf("authentication on for %v; new connections first: %t; then a restart: %t", length, renewed, restarted)
	if err := c.EnableAuth(ctx); err != nil {
		return err
	}
	if renewed {
		c.EachWay(func(p *Proxy) { p.Reset(EveryConn) })
	}
	err := firstError(c.Write(ctx, changes), sleep(ctx, length))
	if err == nil && restarted {
		m := c.Members[r.IntN(len(c.Members))]
		m.Kill()
		err = c.Start(ctx)
	}
	if err == nil {
		err = c.Write(ctx, changes)
	}
	return firstError(err, c.DisableAuth(ctx))
}

// EnableAuth makes the users, unless they exist, and turns authentication on: root may do everything, the proxy may read the registry and
// nothing else.
func (c *Cluster) EnableAuth(ctx context.Context) error {
	return c.Do(ctx, "turn authentication on", func(ctx context.Context, client *clientv3.Client) error {
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

// DisableAuth turns authentication off. It may be off already.
func (c *Cluster) DisableAuth(ctx context.Context) error {
	return c.Do(ctx, "turn authentication off", func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.AuthDisable(ctx)
		return err
	})
}
