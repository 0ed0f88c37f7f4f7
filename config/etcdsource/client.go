package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/encoding"

	"kubeproxy/registry"
)

// The pulse of an open connection. gRPC allows no shorter one. Only a connection in use has it: to
// pings without a call etcd answers by hanging up ("too many pings").
const (
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
)

// maxBackoff is the longest pause between two attempts, gRPC's own included, which would otherwise grow to two minutes.
const maxBackoff = time.Second

// window is how much etcd may send ahead of our reading it. That it is said saves gRPC finding out: it would
// send a ping after each event, and wake up for the answer, to measure how much the network holds.
//
// It holds the largest value that etcd takes by default, 1.5 MiB, so etcd waits for us between values and not within them. It also bounds what
// etcd sends to a node that takes nothing.
const window = 2 << 20

// A client is a fresh connection to etcd and, with a user, a fresh token. Neither outlives a session: an etcd that was restored or wiped
// does not refuse a token of before, but waits with it until its log has grown to where it was.
//
// clientv3 gives us the balancing over members, TLS and the pulse. Its Get and Watch we leave alone and call etcd's own protocol: they wait
// for a connection, try again and resume behind the caller's back, where we want to be told what went wrong, at once, and decide ourselves.
type client struct {
	conn       *clientv3.Client
	kv         etcdserverpb.KVClient
	watch      etcdserverpb.WatchClient
	login      func(ctx context.Context) error // gets a fresh token, while no other call begins; nil without a user
	streamless bool                            // lists come in pages: see errNoStreams
}

// dial returns a client, logged in if there is a user. Without one it does not touch the network:
// the first call connects. What the client receives is added to received, if that is given.
func (c *dialer) dial(ctx context.Context, received *atomic.Int64) (*client, error) {
	// Every client starts elsewhere, or a fleet would crowd on the first member, and a member that
	// is gone would be tried first each time.
	endpoints := make([]string, len(c.Endpoints))
	for i, j := range rand.Perm(len(endpoints)) {
		endpoints[i] = c.Endpoints[j]
	}
	token := new(token)
	conn, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		TLS:                  c.Secured(),
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		MaxUnaryRetries:      1,            // one attempt: trying again is our business
		Logger:               zap.NewNop(), // D46: what matters comes back as an error
		DialOptions: []grpc.DialOption{
			grpc.WithNoProxy(), // as v0.4: HTTPS_PROXY is meant for the world outside
			grpc.WithContextDialer(func(ctx context.Context, member string) (net.Conn, error) { return c.connect(ctx, member, received) }),
			grpc.WithPerRPCCredentials(token),
			grpc.WithChainUnaryInterceptor(failFast),
			grpc.WithInitialWindowSize(window),
			grpc.WithInitialConnWindowSize(window),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: maxBackoff / 20, Multiplier: 2, Jitter: 0.2, MaxDelay: maxBackoff},
				MinConnectTimeout: c.DialTimeout,
			}),
		},
	})
	if err != nil {
		return nil, fmt.Errorf("set up a client for %v: %w", c.Endpoints, err)
	}
	cl := &client{conn: conn, kv: etcdserverpb.NewKVClient(conn.ActiveConnection()), watch: etcdserverpb.NewWatchClient(conn.ActiveConnection())}
	if c.Username != "" {
		cl.login = func(ctx context.Context) error { return token.login(ctx, conn.ActiveConnection(), &c.Config) }
		if err := cl.login(ctx); err != nil {
			cl.close()
			return nil, err
		}
	}
	return cl, nil
}

// failFast has a call fail with the reason when no connection can be made. The methods of clientv3 wait for one until their context ends,
// and then the reason is lost.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// close ends the connection, and every call on it. The error only says that it has ended.
func (c *client) close() { _ = c.conn.Close() }

// maxMessage is what one message may hold.
const maxMessage = 32 << 20

// The options of every call. Where an answer is too large, a list asks again for fewer keys, and a watch is begun again with
// responses in fragments of about 2 MiB.
var callOptions = []grpc.CallOption{grpc.MaxCallRecvMsgSize(maxMessage)}

// A token is what etcd gives a user who has logged in. clientv3 could keep it for us, but it asks
// for it in New, which then blocks, and hides why it could not have it.
type token struct{ text string } // set while no call that uses it begins

func (t *token) login(ctx context.Context, conn *grpc.ClientConn, c *Config) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.DialTimeout, fmt.Errorf("no answer for %v", c.DialTimeout))
	defer cancel()
	password := c.Password
	if c.ReadPassword != nil {
		var err error
		if password, err = c.ReadPassword(); err != nil {
			return fmt.Errorf("password of %s: %w", registry.Quote(c.Username), err)
		}
	}
	resp, err := etcdserverpb.NewAuthClient(conn).Authenticate(ctx, &etcdserverpb.AuthenticateRequest{Name: c.Username, Password: password})
	switch err := rpctypes.Error(err); {
	case errors.Is(err, rpctypes.ErrAuthNotEnabled):
		return nil // then the client asks for no token
	case err != nil:
		return fmt.Errorf("log in as %s: %w", registry.Quote(c.Username), explain(ctx, err))
	}
	t.text = resp.Token
	return nil
}

// GetRequestMetadata implements gRPC's credentials.PerRPCCredentials.
func (t *token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	if t.text == "" {
		return nil, nil
	}
	return map[string]string{rpctypes.TokenFieldNameGRPC: t.text}, nil
}

// RequireTransportSecurity implements gRPC's credentials.PerRPCCredentials. Whether a password may
// cross the network in the clear is said by the scheme of the URL.
func (t *token) RequireTransportSecurity() bool { return false }

// answersReadBy gives the options of a call whose answers a codec of ours reads: proto.Unmarshal would copy each key
// and each value. gRPC calls the option that names a codec experimental.
func answersReadBy(codec encoding.CodecV2) []grpc.CallOption {
	return append(slices.Clip(callOptions), grpc.ForceCodecV2(codec))
}
