package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// A Client asks the node at one socket.
type Client struct {
	path string
	http http.Client
}

// NewClient returns a client of the node that listens at path.
func NewClient(path string) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dialUnix(ctx, path) }
	return &Client{path: path, http: http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

// dialUnix waits for room in the queue of the socket, which is full for a moment when many connect: connect(2) of a Unix
// socket then fails with EAGAIN, where one of TCP would wait.
func dialUnix(ctx context.Context, path string) (net.Conn, error) {
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if !errors.Is(err, syscall.EAGAIN) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(time.Millisecond):
		}
	}
}

// Get asks for a path with a query, and decodes the answer.
func (c *Client) Get(ctx context.Context, path string, query url.Values, answer any) error {
	return c.ask(ctx, http.MethodGet, path, query, nil, answer)
}

// Post has the node act as a request says, and decodes the answer.
func (c *Client) Post(ctx context.Context, path string, request, answer any) error {
	return c.ask(ctx, http.MethodPost, path, nil, request, answer)
}

func (c *Client) ask(ctx context.Context, method, path string, query url.Values, request, answer any) error {
	body, err := c.Open(ctx, method, path, query, request)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(answer); err != nil {
		return fmt.Errorf("%s: the answer cannot be read: %w", c.path, err)
	}
	return nil
}

// maxError bounds what is read of an error.
const maxError = 64 << 10

// Open is Get or Post for an answer that the caller reads.
func (c *Client) Open(ctx context.Context, method, path string, query url.Values, request any) (io.ReadCloser, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	target := url.URL{Scheme: "http", Host: "node", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	response, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if response.StatusCode == http.StatusOK {
		return response.Body, nil
	}
	defer response.Body.Close()
	var failed Error
	if err := json.NewDecoder(io.LimitReader(response.Body, maxError)).Decode(&failed); err != nil || failed.Error == "" {
		return nil, fmt.Errorf("%s: the node answers %s", c.path, response.Status)
	}
	return nil, errors.New(failed.Error)
}

// An Unreachable error is that no node answers at a path.
type Unreachable struct{ error }

// explain says why the node cannot be asked, and what to do.
func (c *Client) explain(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	advice := ""
	switch {
	case ctx.Err() != nil:
		return Unreachable{fmt.Errorf("%s: %w", c.path, context.Cause(ctx))}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		advice = ": no kube-proxy listens there; -control or -config says where it does"
	case errors.Is(err, fs.ErrPermission):
		advice = ": only its user and root may use it"
	case errors.Is(err, io.EOF):
		advice = ": the node closed the connection; only its user and root are answered"
	}
	return Unreachable{fmt.Errorf("%s cannot be used: %w%s", c.path, err, advice)}
}
