package cluster

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

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
