package apisource

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A client asks one API server. It speaks HTTP/1.1: each watch has a connection of its own, and a long list holds up no
// events. Any goroutine may use it.
type client struct {
	cfg   *Config
	guard *guard
	http  *http.Client

	// Package http dials beside the request that wants a connection, and ends the dial with it, but does not wait.
	mu    sync.Mutex // guards over
	over  bool       // no dial begins any more
	dials sync.WaitGroup
}

// The bounds of what a server may send beside lists and watches.
const (
	maxHeader = 64 << 10
	maxAnswer = 64 << 10 // of a document, such as the list of versions
	maxStatus = 4 << 10  // of an error
)

func newClient(cfg *Config) (*client, error) {
	g, err := newGuard(cfg.Credentials)
	if err != nil {
		return nil, err
	}
	c := &client{cfg: cfg, guard: g}
	c.http = &http.Client{
		// To follow a redirect would be to show the token to any server that this one names.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{ // without a proxy: HTTPS_PROXY is meant for the world outside
			DialContext:            c.dial,
			DialTLSContext:         c.dialTLS,
			MaxResponseHeaderBytes: maxHeader,
			MaxIdleConnsPerHost:    2,
			IdleConnTimeout:        time.Minute,
		},
	}
	return c, nil
}

// limit bounds the time of a dial, which calls done at its end.
func (c *client) limit(ctx context.Context) (_ context.Context, done func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, nil, net.ErrClosed
	}
	c.dials.Add(1)
	ctx, cancel := context.WithTimeoutCause(ctx, c.cfg.DialTimeout, remote.Because(Silent, fmt.Errorf("no connection for %v", c.cfg.DialTimeout)))
	return ctx, func() {
		cancel()
		c.dials.Done()
	}, nil
}

func (c *client) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, done, err := c.limit(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	conn, err := c.cfg.dial(ctx, network, addr)
	return conn, explain(ctx, err)
}

func (c *client) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, done, err := c.limit(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	raw, err := c.cfg.dial(ctx, network, addr)
	if err != nil {
		return nil, explain(ctx, err)
	}
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	conn := tls.Client(raw, c.guard.config(host))
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		if err = explain(ctx, err); causeOf(err) == Broken { // it hung up on the first bytes
			err = remote.Because(Insecure, err)
		}
		return nil, err
	}
	return conn, nil
}

// close ends the connections that are kept for further requests.
func (c *client) close() { c.http.CloseIdleConnections() }

// shut ends everything. No request may be under way, and none may follow.
func (c *client) shut() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.dials.Wait()
	c.close()
}

// A response is the body of an answer with status 200. It fails when it makes no progress, unless silence is allowed.
type response struct {
	body    io.ReadCloser
	ctx     context.Context
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	timeout time.Duration
	heard   int // bytes since the timer began anew

	unlimited bool // silence is not counted
}

// minProgress is how many bytes have to come within a RequestTimeout.
const minProgress = 16 << 10

// get asks for a path. The caller closes the response.
func (c *client) get(ctx context.Context, path string) (*response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	r := &response{ctx: ctx, cancel: cancel, timeout: c.cfg.RequestTimeout}
	r.timer = time.AfterFunc(r.timeout, func() { cancel(remote.Because(Silent, fmt.Errorf("no answer for %v", r.timeout))) })
	if err := c.begin(r, path); err != nil {
		r.close()
		return nil, explain(ctx, err)
	}
	return r, nil
}

func (c *client) begin(r *response, path string) error {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, c.cfg.Server+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json, */*") // 0.5.4 does not say which type its /api has
	req.Header.Set("User-Agent", "kube-proxy")
	token, err := c.guard.token()
	if err != nil {
		return remote.Because(Refused, err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	r.body = resp.Body
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		text = nil // the status is news enough
	}
	return refusal(resp, text)
}

// Read implements [io.Reader].
func (r *response) Read(b []byte) (int, error) {
	n, err := r.body.Read(b)
	if r.heard += n; r.heard >= minProgress && !r.unlimited {
		r.timer.Reset(r.timeout)
		r.heard = 0
	}
	if err != nil && err != io.EOF {
		err = explain(r.ctx, err)
	}
	return n, err
}

// close ends the request. A response that was read to its end leaves its connection for the next one.
func (r *response) close() {
	r.timer.Stop()
	if r.body != nil {
		r.body.Close()
	}
	r.cancel(nil)
}

// document asks for a small document and reads it into a value.
func (c *client) document(ctx context.Context, path string, into any) error {
	r, err := c.get(ctx, path)
	if err != nil {
		return err
	}
	defer r.close()
	text, err := io.ReadAll(io.LimitReader(r, maxAnswer))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, into); err != nil {
		return errSyntax(registry.Quote(string(text[:min(len(text), 64)])))
	}
	return nil
}

// A status is how an API server explains an error: v1 and v1beta1 agree on that.
type status struct {
	Message string
	Code    int
}

// A statusError is an answer that is not 200.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

// refusal makes an error of an answer that is not 200.
func refusal(resp *http.Response, text []byte) error {
	said := string(text)
	var s status
	if json.Unmarshal(text, &s) == nil && s.Message != "" {
		said = s.Message
	}
	answer := fmt.Sprintf("HTTP %d %s", resp.StatusCode, http.StatusText(resp.StatusCode))
	line := answer
	if said != "" {
		line += ": " + registry.Quote(said)
	}
	if to := resp.Header.Get("Location"); to != "" {
		line = fmt.Sprintf("%s to %s: redirects are not followed", answer, registry.Quote(to))
	}
	return remote.Because(causeOfStatus(resp.StatusCode), statusError{resp.StatusCode, line})
}

func causeOfStatus(code int) Cause {
	switch code {
	case http.StatusUnauthorized:
		return Refused
	case http.StatusForbidden:
		return Forbidden
	case http.StatusGone:
		return Expired
	}
	return Unable
}

// isStatus reports whether an error is an answer with this status.
func isStatus(err error, code int) bool {
	s, ok := errors.AsType[statusError](err)
	return ok && s.code == code
}

// explainEvent makes an error of an ERROR event. v0.4.4 has no code in it, but etcd's in the text: 401 for history that was
// cleared, 501 for an etcd that is away.
func explainEvent(s status) error {
	said := errors.New(registry.Quote(cmp.Or(s.Message, "without a message")))
	if s.Code == http.StatusGone || s.Code == 0 && len(s.Message) > 4 && s.Message[:4] == "401:" {
		return remote.Because(Expired, fmt.Errorf("the watch ended: %w", said))
	}
	return remote.Because(Unable, fmt.Errorf("the watch ended with an error: %w", said))
}

// endless lets the response be silent from now on. The caller sets a limit of its own.
func (r *response) endless() {
	r.timer.Stop()
	r.unlimited = true
}
