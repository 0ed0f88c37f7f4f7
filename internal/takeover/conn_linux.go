package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/ownersocket"
)

const supported = true

// A conn is one end of a conversation, used by one goroutine.
type conn struct {
	*net.UnixConn
	ctx  context.Context
	stop func() bool // what the end of ctx does to the conversation
	peer ownersocket.Peer
	due  time.Time // of what is being waited for
	in   []byte
	oob  []byte
	out  []byte
}

// newConn takes over a socket. When ctx ends, everything that waits for the peer fails with the cause of that.
func newConn(ctx context.Context, socket *net.UnixConn) (*conn, error) {
	c := &conn{
		UnixConn: socket,
		ctx:      ctx,
		in:       make([]byte, 1+maxPayload),
		oob:      make([]byte, unix.CmsgSpace(4*maxDescriptors)),
		out:      make([]byte, 0, 1+maxPayload),
	}
	peer, err := ownersocket.PeerOf(socket)
	if err != nil {
		return nil, err
	}
	c.peer = peer
	c.stop = context.AfterFunc(ctx, func() { c.SetDeadline(past) })
	return c, nil
}

// past is a deadline that has passed.
var past = time.Unix(1, 0)

// Close ends the conversation.
func (c *conn) Close() error {
	c.stop()
	return c.UnixConn.Close()
}

// who names the peer.
func (c *conn) who() string { return who(c.peer) }

func who(peer ownersocket.Peer) string {
	if peer.PID == 0 { // it has no number in our PID namespace
		return "a process of another container"
	}
	return fmt.Sprintf("process %d", peer.PID)
}

// within has everything that follows fail once this time has passed.
func (c *conn) within(d time.Duration) {
	c.due = time.Now().Add(d)
	c.SetDeadline(c.due)
	if c.ctx.Err() != nil { // AfterFunc may have been before us
		c.SetDeadline(past)
	}
}

// explain names the cause of an error of the socket, where the socket does not know it.
func (c *conn) explain(err error) error {
	switch {
	case c.ctx.Err() != nil:
		return context.Cause(c.ctx)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errStuck
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		return op.Err // the rest of it says only which sockets these are
	}
	return err
}

var errStuck = errors.New("the other process does not go on")

// send sends a frame. The descriptors stay the sender's.
func (c *conn) send(t frameType, payload []byte, descriptors ...int) error {
	c.out = append(append(c.out[:0], byte(t)), payload...)
	var oob []byte
	if len(descriptors) > 0 {
		oob = unix.UnixRights(descriptors...)
	}
	for {
		_, _, err := c.WriteMsgUnix(c.out, oob, nil)
		// Too many descriptors are on their way between processes of this user: the peer has to read some first.
		if !errors.Is(err, unix.ETOOMANYREFS) {
			if err != nil {
				return fmt.Errorf("send %v: %w", t, c.explain(err))
			}
			return nil
		}
		if time.Now().After(c.due) || c.ctx.Err() != nil {
			return fmt.Errorf("send %v: %w", t, c.explain(os.ErrDeadlineExceeded))
		}
		time.Sleep(time.Millisecond)
	}
}

// A frame is one message.
type frame struct {
	kind        frameType
	payload     []byte // valid until the next frame is received
	descriptors []int  // the receiver's
}

// receive waits for a frame. A refusal is an error.
func (c *conn) receive() (frame, error) {
	n, oobn, flags, _, err := c.ReadMsgUnix(c.in, c.oob)
	descriptors, bad := rights(c.oob[:oobn])
	switch {
	case err != nil:
		err = c.explain(err)
	case bad != nil:
		err = bad
	case flags&unix.MSG_CTRUNC != 0:
		err = fmt.Errorf("descriptors were lost: %w", errLimit())
	case flags&unix.MSG_TRUNC != 0:
		err = errors.New("a frame that is too long")
	case n == 0:
		err = io.EOF
	}
	if err != nil {
		closeAll(descriptors)
		return frame{}, err
	}
	f := frame{frameType(c.in[0]), c.in[1:n], descriptors}
	if f.kind != frameItems && len(f.descriptors) > 0 {
		closeAll(f.descriptors)
		return frame{}, fmt.Errorf("%v with descriptors", f.kind)
	}
	if f.kind == frameRefusal {
		return frame{}, &refusedError{quoted(f.payload)}
	}
	return f, nil
}

// expect waits for a frame of one type.
func (c *conn) expect(t frameType) ([]byte, error) {
	f, err := c.receive()
	if err != nil {
		return nil, fmt.Errorf("awaiting %v: %w", t, err)
	}
	if f.kind != t {
		closeAll(f.descriptors)
		return nil, fmt.Errorf("awaiting %v: got %v", t, f.kind)
	}
	return f.payload, nil
}

// rights returns the descriptors that came with a message.
func rights(oob []byte) ([]int, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, m := range messages {
		if m.Header.Level != unix.SOL_SOCKET || m.Header.Type != unix.SCM_RIGHTS {
			continue
		}
		some, err := unix.ParseUnixRights(&m)
		if err != nil {
			return all, err
		}
		all = append(all, some...)
	}
	return all, nil
}

func closeAll(descriptors []int) {
	for _, d := range descriptors {
		unix.Close(d)
	}
}

// errLimit names the limit of descriptors.
func errLimit() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	return fmt.Errorf("this process may have %d open (RLIMIT_NOFILE)", limit.Cur)
}

// A refusedError is what the peer says that it will not go on.
type refusedError struct{ reason string }

func (e *refusedError) Error() string { return "the other process says: " + e.reason }

// refuse tells the peer why the conversation is over. An error does not matter: the peer sees the end of file.
func (c *conn) refuse(why error) {
	if _, refused := errors.AsType[*refusedError](why); refused {
		return // it knows
	}
	c.due = time.Now().Add(time.Second)
	c.SetDeadline(c.due)             // also when ctx has ended
	_ = c.SetWriteBuffer(roomForAll) // or there may be none, beside what the peer has not read
	reason := why.Error()
	_ = c.send(frameRefusal, []byte(reason[:min(len(reason), maxReason)]))
}

// roomForAll is more than a socket has to begin with. The kernel gives as much of it as it allows (net.core.wmem_max), twice.
const roomForAll = 1 << 20

// sendItems sends a stream of items, until it ends or fails.
func (c *conn) sendItems(items iter.Seq2[Item, error]) (sent end, err error) {
	var stream []byte
	var descriptors []int
	flush := func(least int) error {
		for len(stream) > least || len(descriptors) > 0 {
			payload := stream[:min(len(stream), maxPayload)]
			if err := c.send(frameItems, payload, descriptors...); err != nil {
				return err
			}
			sent.add(payload, len(descriptors))
			descriptors = descriptors[:0]
			stream = stream[:copy(stream, stream[len(payload):])]
		}
		return nil
	}
	for it, err := range items {
		switch {
		case err != nil:
			return sent, err
		case len(it.Descriptors) > maxDescriptors || len(it.Body) > maxBody:
			return sent, fmt.Errorf("an item of kind %d with %d descriptors and %d bytes", it.Kind, len(it.Descriptors), len(it.Body))
		}
		if len(descriptors)+len(it.Descriptors) > maxDescriptors {
			if err := flush(0); err != nil {
				return sent, err
			}
		}
		stream = appendItem(stream, it)
		descriptors = append(descriptors, it.Descriptors...)
		sent.items++
		if len(stream) >= maxPayload {
			if err := flush(maxPayload - 1); err != nil {
				return sent, err
			}
		}
	}
	if err := flush(0); err != nil {
		return sent, err
	}
	return sent, c.send(frameEnd, sent.payload())
}

// items yields the items of a stream, and an error if it does not come to its end. The consumer owns the descriptors of each.
func (c *conn) items() iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		var s scanner
		defer func() { closeAll(s.descriptors) }()
		for {
			f, err := c.receive()
			switch {
			case err != nil:
			case f.kind == frameEnd:
				var want end
				if want, err = parseEnd(f.payload); err == nil {
					err = s.finish(want)
				}
				if err == nil {
					return
				}
			case f.kind == frameItems:
				s.feed(f.payload, f.descriptors)
				for ok := true; ok && err == nil; {
					var it Item
					if it, ok, err = s.next(); ok && !yield(it, nil) {
						return
					}
				}
			default:
				err = fmt.Errorf("awaiting items: got %v", f.kind)
			}
			if err != nil {
				yield(Item{}, &streamError{err})
				return
			}
		}
	}
}

// A streamError is why a stream of items did not come to its end.
type streamError struct{ error }

func (e *streamError) Unwrap() error { return e.error }

// quoted shows what a peer says in a line of the log.
func quoted(text []byte) string {
	return strings.ToValidUTF8(fmt.Sprintf("%.*q", maxReason, text), "?")
}

// gone reports whether an error says that the peer has closed its end, or has ended.
func gone(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET)
}
