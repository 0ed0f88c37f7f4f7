package etcdsource

import (
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/pages"
	"kubeproxy/config/records"
	"kubeproxy/config/remote"
)

// errNoStreams is that a member is of a release before 3.7, or stands behind something that passes no streams on. It says so when the first part
// is asked for.
var errNoStreams = errors.New("no streams of keys")

// pageSize is how many keys a page has, if lists come in pages and etcd is quick.
func (c *dialer) pageSize() int64 { return cmp.Or(c.PageSize, etcdconfig.DefaultPageSize) }

// hasStreams reports whether lists are to come in streams where etcd has them.
func (c *dialer) hasStreams() bool { return c.PageSize == 0 }

// stream asks for the keys in one stream (RangeStream, etcd 3.7). Etcd looks for the end of the prefix once, and not with each page. The keys
// are those of one revision, which comes with the last of them.
func (c *client) stream(ctx context.Context, req *etcdserverpb.RangeRequest, more func(), begin func(keys int) records.List) (l listing, err error) {
	calls, end := context.WithCancel(ctx) // or a stream that is given up would stay open
	defer end()
	l.asked = time.Now()
	req.Limit = 0
	reader, keys := pages.NewReader(), new(gathering)
	stream, err := c.kv.RangeStream(calls, req, append(answersReadBy(reader), grpc.WaitForReady(false))...)
	for complete := false; err == nil; {
		var part *etcdserverpb.RangeStreamResponse
		if part, err = stream.Recv(); errors.Is(err, io.EOF) && complete {
			l.at = time.Now()
			return l, nil
		} else if err != nil {
			break
		}
		resp := part.GetRangeResponse()
		if complete || resp.GetHeader() == nil && len(resp.GetKvs()) == 0 {
			return l, remote.Because(Unable, errors.New("a part of a list has no keys, or comes after its end: this is no answer of an etcd"))
		}
		more()
		if keys.last == nil {
			l.list = begin(0) // how many there are is not known yet
		}
		if err := keys.addTo(&l.list, resp.GetKvs()); err != nil {
			return l, err
		}
		if complete = resp.GetHeader() != nil; complete {
			l.isOf(resp, req)
		}
	}
	switch {
	case errors.Is(err, io.EOF):
		return l, remote.Because(Broken, errors.New("a list ended before it was complete"))
	case status.Code(err) == codes.Unimplemented:
		return l, errNoStreams
	}
	return l, explain(ctx, err)
}
