package etcdv2source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A dialer makes connections to members.
type dialer struct {
	etcdconfig.Config
	names *etcdconfig.Names
}

// A conn is one TCP connection to one member. Once it is broken it stays broken: requests are answered by one process, or not at all.
// Requests come one after the other.
type conn struct {
	dialer *dialer
	member string // scheme, host and port
	client http.Client
	dialed atomic.Bool
}

var errBroken = errors.New("the connection is over")

// open returns a connection that the first request makes. The context ends it.
func (d *dialer) open(ctx context.Context, member string) *conn {
	c := &conn{dialer: d, member: member}
	c.client = http.Client{
		Transport: &http.Transport{
			Proxy:                  nil, // HTTP_PROXY is meant for the world outside
			TLSClientConfig:        d.Secured(),
			TLSHandshakeTimeout:    d.DialTimeout,
			DisableCompression:     true,
			MaxIdleConnsPerHost:    1,
			MaxConnsPerHost:        1,
			MaxResponseHeaderBytes: maxError,
			DialContext:            func(dial context.Context, _, addr string) (net.Conn, error) { return c.dial(ctx, dial, addr) },
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// keepalive finds a connection whose other end has vanished without a word, within 11 s. What it would lose otherwise is only time.
var keepalive = net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}

// dial connects, once. A second time would lead to a process of which nothing is known. The end of life ends the connection,
// and not that of the request which happened to be the first.
func (c *conn) dial(life, request context.Context, addr string) (net.Conn, error) {
	if c.dialed.Swap(true) {
		return nil, errBroken
	}
	request, cancel := context.WithTimeout(request, c.dialer.DialTimeout)
	defer cancel()
	conn, err := c.dialer.names.Dial(request, addr)
	if err != nil {
		return nil, err
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepalive) // an old system may not know it; then the probe and the resync are left
	}
	context.AfterFunc(life, func() { conn.Close() })
	return conn, nil
}

// close ends the connection, if no request is under way.
func (c *conn) close() { c.client.CloseIdleConnections() }

// get sends a request. The head of the answer has to come within the request timeout. The caller closes the body.
func (c *conn) get(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.dialer.DialTimeout+c.dialer.RequestTimeout, func() {
		cancel(remote.Because(silent, fmt.Errorf("no answer for %v", c.dialer.RequestTimeout)))
	})
	defer timer.Stop()
	fail := func(err error) (*http.Response, error) {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(nil)
		return nil, bare(err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.member+path, nil)
	if err != nil {
		return fail(err)
	}
	req.URL.RawQuery = query.Encode()
	if c.dialer.Username != "" {
		password := c.dialer.Password
		if c.dialer.ReadPassword != nil {
			if password, err = c.dialer.ReadPassword(); err != nil {
				return fail(remote.Because(refused, fmt.Errorf("password of %s: %w", registry.Quote(c.dialer.Username), err)))
			}
		}
		req.SetBasicAuth(c.dialer.Username, password)
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return fail(err)
	}
	resp.Body = &body{ReadCloser: resp.Body, ctx: ctx, cancel: cancel}
	return resp, nil
}

// bare gives an error of net/http without the method and the URL around it: the log line has the address.
func bare(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		if _, known := remote.CauseOf[cause](err); !known {
			return remote.Because(silent, err)
		}
	}
	return err
}

// A body is an answer on its way. With a timeout set it may take as long as it likes, while something comes of it within each timeout.
type body struct {
	io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timeout time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	if b.timeout > 0 {
		timer := time.AfterFunc(b.timeout, func() { b.cancel(remote.Because(silent, fmt.Errorf("no more of an answer for %v", b.timeout))) })
		defer timer.Stop()
	}
	n, err := b.ReadCloser.Read(p)
	if cause := context.Cause(b.ctx); err != nil && err != io.EOF && cause != nil {
		err = cause
	}
	return n, err
}

func (b *body) Close() error {
	err := b.ReadCloser.Close()
	b.cancel(nil)
	return err
}

// patient has the rest of an answer come piece by piece within the request timeout.
func (c *conn) patient(resp *http.Response) io.Reader {
	if b, ok := resp.Body.(*body); ok {
		b.timeout = c.dialer.RequestTimeout
	}
	return resp.Body
}
