package etcdsource

import (
	"context"
	"net"
	"sync/atomic"

	"kubeproxy/config/etcdconfig"
)

// A Config says which etcd to follow and how.
type Config = etcdconfig.Config

// A dialer makes clients. It keeps the addresses of names from one client to the next.
type dialer struct {
	Config
	names *etcdconfig.Names
}

// connect returns a connection to one address of a member, "host:port". What the connection receives is added to received, if
// that is given.
func (c *dialer) connect(ctx context.Context, member string, received *atomic.Int64) (net.Conn, error) {
	conn, err := c.names.Dial(ctx, member)
	if err != nil || received == nil {
		return conn, err
	}
	return etcdconfig.Counted(conn, received), nil
}
