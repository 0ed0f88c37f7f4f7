package etcdsource

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdconfig"
)

// A Dialer makes connections for a program that does more with etcd than to follow it. They are set up as the source's own are: TLS is
// verified, members are tried in random order, and a user is logged in anew for each of them. It is for one goroutine.
type Dialer struct{ dialer }

// NewDialer checks cfg and returns a dialer. It touches no network.
func NewDialer(cfg Config) (*Dialer, error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	return &Dialer{dialer{cfg, etcdconfig.NewNames(nil)}}, nil
}

// Dial returns a client, which the caller closes. Without a user the first call connects. The error is ready for a log line.
func (d *Dialer) Dial(ctx context.Context) (*clientv3.Client, error) {
	c, err := d.dial(ctx, nil)
	if err != nil {
		return nil, d.Explain(ctx, err)
	}
	return c.conn, nil
}

// Explain returns an error of a call of a client as a log line should have it: which etcd it is about, etcd's message without gRPC's
// frame, and what to do about it if that is known. The context is the call's.
func (d *Dialer) Explain(ctx context.Context, err error) error {
	err = explain(ctx, err)
	cause := causeOf(err)
	what := fmt.Sprintf(causes[cause].line, d.Endpoints)
	if advice := d.advice(cause, err.Error()); advice != "" {
		return fmt.Errorf("%s: %w (%s)", what, err, advice)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// LocalAddr returns the address of this machine from which it reaches the first member of etcd that there is a route to. Nothing is sent.
func (d *Dialer) LocalAddr(ctx context.Context) (netip.Addr, error) {
	var failed error
	for _, endpoint := range d.Endpoints {
		u, err := url.Parse(endpoint)
		if err != nil {
			return netip.Addr{}, err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "udp", u.Host)
		if err != nil {
			failed = err
			continue
		}
		addr := conn.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		_ = conn.Close() // nothing was sent
		return addr, nil
	}
	return netip.Addr{}, failed
}

// Close ends what the dialer has under way. Clients live on.
func (d *Dialer) Close() { d.names.Close() }
