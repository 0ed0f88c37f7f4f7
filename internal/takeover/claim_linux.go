package takeover

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"
)

// A claim is the right to be the next process that listens at a path. Of several processes that find nobody there, one has it, and begins. The
// others wait until that one listens. A process that takes over reserves it as well: if its predecessor is killed, those who wait find nobody.
//
// It is a lock on a file beside the socket, which the kernel frees when the process ends. The file stays, or there could be two locks.
type claim struct {
	path string
	has  bool      // this process has it
	lock *os.File  // nil without it, or if there can be no lock
	turn time.Time // until when this process waits for its turn with the process that listens
}

// lockSuffix is added to a path for the file that is locked.
const lockSuffix = ".lock"

// reserveWithin is how long a successor tries to get the claim: who looks whether anybody listens has it for a moment.
const reserveWithin = 500 * time.Millisecond

// find connects to the process that listens. With [ErrNobody] nobody does, and this process may begin. While another process has the claim, find waits
// for that one to listen, but not for longer than answerWithin. That wait does not count towards the turn.
func (r *claim) find(ctx context.Context) (*conn, error) {
	var until time.Time // when another process with the claim is waited for no more; zero: none was met
	for {
		c, err := dial(ctx, r.path)
		if err == nil {
			r.leave() // it is for the successor whose turn it is
			if !until.IsZero() {
				r.turn = time.Now().Add(answerWithin)
			}
			return c, nil
		}
		if !errors.Is(err, ErrNobody) || r.has {
			return nil, err
		}
		switch now := time.Now(); {
		case r.take():
			continue // who had it before may listen by now
		case until.IsZero():
			until = now.Add(answerWithin)
		case !now.Before(until): // better two processes serve than none
			glog.Warningf("take-over: another process has had %s locked for %v, and does not serve: this process begins, too", r.path+lockSuffix, answerWithin)
			r.has = true
			return nil, ErrNobody
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
}

// reserve takes the claim for a take-over, if it can. The predecessor talks to one successor at a time, so another process that is stuck with the
// claim does not keep this one from taking over.
func (r *claim) reserve(ctx context.Context) {
	for until := time.Now().Add(reserveWithin); !r.take(); {
		if !time.Now().Before(until) {
			glog.Warningf("take-over: another process has %s locked: if the predecessor ends now, a third process may begin, too", r.path+lockSuffix)
			return
		}
		if pause(ctx) != nil {
			return
		}
	}
}

// take reports whether this process has the claim now. It has if there can be no lock: better two processes serve than none.
func (r *claim) take() bool {
	if r.has {
		return true
	}
	f, err := os.OpenFile(r.path+lockSuffix, os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err == nil {
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
		}
	}
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return false
	case err != nil:
		glog.Warningf("take-over: %s cannot be locked, so another process may begin at the same time: %v", r.path+lockSuffix, err)
	default:
		r.lock = f
	}
	r.has = true
	return true
}

// leave gives the claim to others.
func (r *claim) leave() {
	if r.lock != nil {
		r.lock.Close()
	}
	r.has, r.lock = false, nil
}

// dial connects to path.
func dial(ctx context.Context, path string) (*conn, error) {
	socket, err := new(net.Dialer).DialContext(ctx, "unixpacket", path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNobody
	case err != nil:
		return nil, err
	}
	c, err := newConn(ctx, socket.(*net.UnixConn))
	if err != nil {
		socket.Close()
	}
	return c, err
}

// turnPause is how long a successor waits before it asks again at the path, where another process serves by now.
const turnPause = 50 * time.Millisecond

// pause waits for turnPause. The error is why ctx ended before.
func pause(ctx context.Context) error {
	select {
	case <-time.After(turnPause):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
