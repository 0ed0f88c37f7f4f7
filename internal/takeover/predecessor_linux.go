package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/internal/ownersocket"
)

// helloWithin is how long a process waits for what its peer can say at once. Tests have less time.
var helloWithin = 5 * time.Second

// How long a predecessor waits for its successor.
const (
	openWithin   = 30 * time.Second // to open ten thousand ports takes about a second
	freezeWithin = 2 * time.Second  // traffic stands still meanwhile
	lastWithin   = 5 * time.Second
	stopWithin   = 5 * time.Second // from the signal to stop, which finds a conversation under way
)

// errStopping is why a conversation is given up that does not come to its end in time.
var errStopping = errors.New("this process was told to stop")

// A Listener is where a process waits for its successor.
type Listener struct {
	socket     *ownersocket.Socket
	stopWithin time.Duration

	// Failures counts the conversations after which this process goes on; a ping is none. It is set before Run; nil counts nothing.
	Failures *atomic.Uint64

	// Lacks returns the names of the sources that this process has not read. It is set before Run; nil says none.
	Lacks func() []string
}

// Listen takes the place of the process that listened at path before. The file is made with mode 0600.
func Listen(path string) (*Listener, error) {
	socket, err := ownersocket.Listen("unixpacket", path)
	if err != nil {
		return nil, err
	}
	return &Listener{socket: socket, stopWithin: stopWithin}, nil
}

// Close stops listening, and removes the file unless it is another process's by now.
func (l *Listener) Close() { l.socket.Close() }

// Run hands over to the first successor that takes everything, and returns true once it serves. Then it has had from last what is to be
// told after the release. It returns false when ctx ends. One conversation is held at a time. One that has begun goes on when ctx ends, to
// its end or for a few seconds: if it broke off, this process would drain, and its successor would end.
func (l *Listener) Run(ctx context.Context, p Predecessor, last func() []Item) (handedOver bool) {
	defer context.AfterFunc(ctx, func() { l.socket.SetDeadline(past) })()
	for {
		socket, err := l.socket.AcceptUnix()
		if ctx.Err() != nil {
			if err == nil {
				socket.Close()
			}
			return false
		}
		if err != nil {
			glog.Warningf("take-over: %v; again in %v", err, acceptPause)
			select {
			case <-time.After(acceptPause):
			case <-ctx.Done():
			}
			continue
		}
		if l.converse(ctx, socket, p, last) {
			return true
		}
	}
}

// acceptPause is how long a listener waits after a failure: for want of descriptors, most often.
const acceptPause = time.Second

// converse talks to a peer, and reports whether it serves now.
func (l *Listener) converse(ctx context.Context, socket *net.UnixConn, p Predecessor, last func() []Item) bool {
	longer, cancel := outlasting(ctx, l.stopWithin)
	defer cancel()
	c, err := newConn(longer, socket)
	if err != nil {
		glog.Errorf("take-over: %v", err)
		socket.Close()
		return false
	}
	defer c.Close()
	started, can, err := l.greet(ctx, c)
	switch {
	case ctx.Err() != nil && !started: // without a word: the peer asks again, and finds nobody
		return false
	case err == nil && !started: // a ping
		return false
	case err != nil:
		l.failed()
		c.refuse(err)
		glog.Errorf("%s is not handed anything: %v; this process goes on", c.who(), err)
		return false
	}
	began := time.Now()
	frozen, sent, err := handOver(c, p, can)
	if err != nil && word(c) { // it came first
		err = nil
	}
	if err != nil {
		l.failed()
		c.refuse(err) // first: once a byte has moved here, a successor that hears nothing could not know it, if this process is killed
		p.Thaw()
		then := "goes on, and nobody was lost"
		if ctx.Err() != nil {
			then = "stops"
		}
		glog.Errorf("the take-over by %s has failed: %v; this process %s", c.who(), err, then)
		return false
	}
	stood := time.Since(frozen)
	p.Release()
	glog.Infof("%s has taken over: %d items with %d descriptors in %v, in which traffic stood still for %v",
		c.who(), sent.items, sent.descriptors, time.Since(began).Round(time.Millisecond), stood.Round(100*time.Microsecond))
	c.within(lastWithin)
	if _, err = c.sendItems(each(last())); err == nil {
		_, err = c.receive() // its end of file: it has told the service manager who serves
	}
	if err != nil && !gone(err) {
		glog.Warningf("%s serves, and could not be told what was counted here: %v", c.who(), err)
	}
	return true
}

func (l *Listener) failed() {
	if l.Failures != nil {
		l.Failures.Add(1)
	}
}

// outlasting returns a context that ends this long after ctx.
func outlasting(ctx context.Context, d time.Duration) (longer context.Context, cancel func()) {
	longer, end := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(d):
			end(errStopping)
		case <-longer.Done():
		}
	})
	return longer, func() {
		stop()
		end(nil)
	}
}

// greet hears what a peer wants. It reports whether that is to take over, and what both can do. When ctx ends before, nothing is wanted.
func (l *Listener) greet(ctx context.Context, c *conn) (wanted bool, can features, err error) {
	c.within(helloWithin)
	stop := context.AfterFunc(ctx, func() { c.SetDeadline(past) })
	defer func() {
		if !stop() { // also when all was heard: the deadline may pass only now
			wanted, err = false, context.Cause(ctx)
		}
	}()
	if err := c.peer.Distrust(); err != nil {
		return false, 0, err
	}
	f, err := c.receive()
	if gone(err) {
		return false, 0, nil // it has asked for nothing
	}
	if err != nil {
		return false, 0, fmt.Errorf("awaiting hello: %w", err)
	}
	switch f.kind {
	case framePing:
		var lacks []string
		if l.Lacks != nil {
			lacks = l.Lacks()
		}
		if err := c.send(framePong, []byte(strings.Join(lacks, "\n"))); !gone(err) { // else it does not want to know any more
			return false, 0, err
		}
		return false, 0, nil
	case frameHello:
		can, err := parseHello(f.payload)
		return true, can & allFeatures, err
	}
	return false, 0, fmt.Errorf("awaiting hello: got %v", f.kind)
}

// handOver gives a peer everything, up to its word. When it fails p is to be thawed, unless the word came at the same time.
func handOver(c *conn, p Predecessor, can features) (frozen time.Time, sent end, err error) {
	open, err := openDescriptors()
	if err != nil {
		return frozen, sent, err
	}
	if err := c.send(frameOffer, offer{uint32(open), can}.payload()); err != nil {
		return frozen, sent, err
	}
	if _, err := c.expect(frameAccept); err != nil {
		return frozen, sent, err
	}
	glog.Infof("%s takes over", c.who())
	c.within(openWithin)
	listeners, err := p.Listeners()
	if err != nil {
		return frozen, sent, err
	}
	if sent, err = c.sendItems(each(listeners)); err != nil {
		return frozen, sent, err
	}
	f, err := c.receive()
	switch {
	case err != nil:
		return frozen, sent, fmt.Errorf("awaiting opened: %w", err)
	case f.kind == frameServing: // it takes listeners only
		return time.Now(), sent, nil
	case f.kind != frameOpened:
		return frozen, sent, fmt.Errorf("awaiting opened: got %v", f.kind)
	}

	if can&lends != 0 {
		if err := lend(c, p, can&lendsSessions != 0); err != nil {
			return frozen, sent, err
		}
	}
	frozen = time.Now()
	c.within(freezeWithin)
	ctx, cancel := context.WithTimeoutCause(c.ctx, freezeWithin, errStuck)
	defer cancel()
	live, err := p.Freeze(ctx)
	if err != nil {
		return frozen, sent, err
	}
	rest, err := c.sendItems(live)
	if err != nil {
		return frozen, sent, err
	}
	sent.items, sent.descriptors = sent.items+rest.items, sent.descriptors+rest.descriptors
	_, err = c.expect(frameServing)
	return frozen, sent, err
}

// lend passes on what goes on here for now, in streams that the peer answers one by one: so none of them waits for room while p does,
// and none is left to be read once traffic stands still. An empty one is the last.
func lend(c *conn, p Predecessor, sessions bool) error {
	for more := true; more; {
		c.within(freezeWithin) // a part of the traffic waits for send
		lent := false
		var err error
		if more, err = p.Lend(sessions, func(items []Item) error {
			lent = true
			_, err := c.sendItems(each(items))
			return err
		}); err != nil {
			return err
		}
		if !lent {
			continue
		}
		c.within(openWithin)
		if _, err := c.expect(frameTaken); err != nil {
			return err
		}
	}
	_, err := c.sendItems(each(nil))
	return err
}

// word ends a conversation that has failed, and reports whether the word came before. From then on the peer cannot send it any more.
func word(c *conn) bool {
	if err := c.CloseRead(); err != nil {
		return false
	}
	c.SetDeadline(time.Now().Add(time.Second)) // never waits so long: what has arrived is there, and then the end of file
	for {
		f, err := c.receive()
		if err != nil {
			return false
		}
		closeAll(f.descriptors)
		if f.kind == frameServing {
			return true
		}
	}
}

// openDescriptors counts those of this process.
func openDescriptors() (int, error) {
	all, err := os.ReadDir("/proc/self/fd")
	return len(all), err
}

// each makes a sequence of items that there are.
func each(items []Item) func(yield func(Item, error) bool) {
	return func(yield func(Item, error) bool) {
		for it := range slices.Values(items) {
			if !yield(it, nil) {
				return
			}
		}
	}
}
