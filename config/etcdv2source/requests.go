package etcdv2source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"kubeproxy/config/remote"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A listing is everything below the prefix, at one index.
type listing struct {
	nodes   []*node // those with values, in the order of their keys
	index   int64
	cluster string
	atLeast int64     // the index that was known when it was asked for
	asked   time.Time // before the request was sent: everything written by then is in it
	at      time.Time // when it was in
}

var keysPath = "/v2/keys" + root

// list reads everything. With quorum, it is not older than the request.
func (c *conn) list(ctx context.Context, quorum bool) (listing, error) {
	query := url.Values{"recursive": {"true"}, "sorted": {"true"}}
	if quorum {
		query.Set("quorum", "true")
	}
	l := listing{asked: time.Now()}
	resp, err := c.get(ctx, keysPath, query)
	if err != nil {
		return l, err
	}
	defer resp.Body.Close()
	l.cluster = resp.Header.Get("X-Etcd-Cluster-Id")
	if resp.StatusCode != http.StatusOK {
		err := decodeError(c.patient(resp), resp.StatusCode)
		e, ok := errors.AsType[*apiError](err)
		switch {
		case !ok:
		case e.Code == codeKeyNotFound: // nothing was ever written: an empty registry
			l.index, l.at = e.Index, time.Now()
			return l, nil
		case e.Code == 0 && e.status == http.StatusNotFound:
			return l, c.noAPI(ctx, resp)
		}
		return l, err
	}
	if l.index, err = indexOf(resp); err != nil {
		return l, err
	}
	l.nodes, err = readLeaves(c.patient(resp), maxList)
	l.at = time.Now()
	return l, err
}

// noAPI says what answers in place of an etcd 2.
func (c *conn) noAPI(ctx context.Context, resp *http.Response) error {
	resp.Body.Close()
	what := "this is no etcd 2"
	if v, err := c.version(ctx); err == nil {
		what = fmt.Sprintf("this is an etcd %s that does not serve the v2 API", v)
	}
	return remote.Because(unable, errors.New("there is nothing at "+keysPath+": "+what))
}

// errCleared is the end of a poll whose next event is not among those that etcd remembers.
var errCleared = errors.New("etcd has forgotten the events that come next")

// A poll is a wait for the first event at or after an index.
type poll struct {
	resp  *http.Response
	index int64 // of etcd, when the wait began: events up to it are answered at once
}

// wait begins a poll: when it returns, etcd has looked into its history, and will answer with the first event that it found or that comes.
func (c *conn) wait(ctx context.Context, from int64) (poll, error) {
	resp, err := c.get(ctx, keysPath, url.Values{"recursive": {"true"}, "wait": {"true"}, "waitIndex": {strconv.FormatInt(from, 10)}})
	if err != nil {
		return poll{}, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		err := decodeError(c.patient(resp), resp.StatusCode)
		if e, ok := errors.AsType[*apiError](err); ok && e.Code == codeEventCleared {
			return poll{}, errCleared
		}
		return poll{}, err
	}
	p := poll{resp: resp}
	if p.index, err = indexOf(resp); err != nil {
		resp.Body.Close()
		return poll{}, err
	}
	if p.index < from-1 {
		resp.Body.Close()
		return poll{}, remote.Because(wentBack, fmt.Errorf("it went back from index %d to %d: restored or wiped?", from-1, p.index))
	}
	return p, nil
}

// event waits for the event. It closes the poll.
func (p poll) event() (*response, error) {
	defer p.resp.Body.Close()
	ev := new(response)
	if err := decode(p.resp.Body, maxEvent, ev); err != nil {
		return nil, err
	}
	if ev.Node == nil {
		return nil, remote.Because(unable, errors.New("an event without a node"))
	}
	return ev, nil
}

// reached asks by quorum for etcd's index.
func (c *conn) reached(ctx context.Context) (int64, error) {
	resp, err := c.get(ctx, keysPath, url.Values{"quorum": {"true"}})
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		err := decodeError(c.patient(resp), resp.StatusCode)
		if e, ok := errors.AsType[*apiError](err); ok && e.Code == codeKeyNotFound {
			return e.Index, nil
		}
		return 0, err
	}
	index, err := indexOf(resp)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, io.LimitReader(c.patient(resp), maxEvent)) // so that the connection can be used again
	return index, err
}

// hasRegistry asks for the top of the registry, without what is below its directories: a few hundred bytes, however many records there are.
func (c *conn) hasRegistry(ctx context.Context) (bool, error) {
	resp, err := c.get(ctx, keysPath, nil)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound { // nothing was ever written, or there is no v2 API
		return false, nil
	}
	if resp.StatusCode != http.StatusOK {
		return false, decodeError(c.patient(resp), resp.StatusCode)
	}
	var top response
	if err := decode(c.patient(resp), maxTop, &top); err != nil {
		return false, err
	}
	return top.Node != nil && len(top.Node.Nodes) > 0, nil
}

// version asks a member which etcd it is, such as "2.3.8".
func (c *conn) version(ctx context.Context) (string, error) {
	resp, err := c.get(ctx, "/version", nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(c.patient(resp), maxError))
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", &apiError{status: resp.StatusCode}
	}
	return parseVersion(text)
}
