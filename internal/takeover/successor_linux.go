package takeover

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"syscall"
	"time"

	"github.com/golang/glog"
	"golang.org/x/sys/unix"

	"kubeproxy/internal/ownersocket"
)

// answerWithin is how long a successor waits for each step of its predecessor, and for its turn: the predecessor may be busy with another
// successor first.
const answerWithin = openWithin + lastWithin

// Waits returns nil if a process waits for its successor at path, and [ErrNobody] if there is none. After any other error it is not
// known: the process may be busy.
func Waits(ctx context.Context, path string) error {
	_, err := Lacks(ctx, path)
	return err
}

// Lacks is [Waits], and returns the names of the sources that the process has not read. An earlier release names none. If the process is
// busy with a successor, Lacks waits as long as [Take] waits for its turn, until ctx ends at most.
func Lacks(ctx context.Context, path string) (sources []string, err error) {
	_, sources, err = ask(ctx, path, answerWithin)
	return sources, err
}

// ask is [Lacks] within some time, and returns the process that answers, too.
func ask(ctx context.Context, path string, within time.Duration) (peer ownersocket.Peer, sources []string, err error) {
	for turn := time.Now().Add(within); ; {
		c, err := dial(ctx, path)
		if err != nil {
			return peer, nil, err
		}
		sources, err := c.lacks(turn)
		c.Close()
		// It has handed over to another process, which listens at the path by now, or it was ending. The path itself tells.
		if !gone(err) || !time.Now().Before(turn) {
			return c.peer, sources, err
		}
		if err := pause(ctx); err != nil {
			return peer, nil, err
		}
	}
}

// lacks has what the process at the other end has not read. A process that is busy has until turn to say it.
func (c *conn) lacks(turn time.Time) (sources []string, err error) {
	c.within(time.Until(turn))
	if err := c.send(framePing, nil); err != nil {
		return nil, err
	}
	f, err := c.receive()
	if len(f.payload) > 0 {
		sources = strings.Split(string(f.payload), "\n")
	}
	return sources, err
}

// A Taken is what a process has that has taken over, or that found nobody to take over from.
type Taken struct {
	conn  *conn // nil if the predecessor has ended, or there was none
	claim *claim
}

// Take takes over from the process that waits at path, and returns once s serves. It calls open for s to apply its first
// configuration, after its AdoptListeners. If another successor is first, Take waits until that one serves, and takes over from it. The
// error is [ErrNobody] if no process waits there: then s has not been called, and the process may begin alone. In both cases other processes that call
// Take and find nobody wait for this one to listen, for a while, until Close of what is returned. After any other error this process has to end.
func Take(ctx context.Context, path string, s Successor, open func()) (*Taken, error) {
	r := &claim{path: path}
	c, err := r.takeOver(ctx, s, open)
	if err != nil && !errors.Is(err, ErrNobody) {
		r.leave()
		return nil, err
	}
	return &Taken{c, r}, err
}

// takeOver is [Take], and returns the conversation; nil if the predecessor has ended.
func (r *claim) takeOver(ctx context.Context, s Successor, open func()) (*conn, error) {
	r.turn = time.Now().Add(answerWithin)
	for {
		c, err := r.find(ctx)
		if err != nil {
			return nil, err
		}
		listeners, can, err := hello(c, r)
		_, refused := errors.AsType[*refusedError](err)
		// It has handed over to another one, was killed, or was told to stop.
		if gone(err) && time.Now().Before(r.turn) || refused && errors.Is(Waits(ctx, r.path), ErrNobody) {
			c.Close()
			if err := pause(ctx); err != nil {
				return nil, err
			}
			continue
		}
		if err == nil {
			var lives *conn
			if lives, err = take(c, r.path, listeners, can, s, open); err == nil {
				return lives, nil
			}
		}
		defer c.Close()
		c.refuse(err)
		if _, ok := errors.AsType[*replacedError](err); ok {
			return nil, err
		}
		return nil, fmt.Errorf("%s goes on: %w", c.who(), err)
	}
}

// take takes over from a process that has sent its listeners. It returns c, or nil if that process has ended.
func take(c *conn, path string, listeners []Item, can features, s Successor, open func()) (*conn, error) {
	began := time.Now()
	live, err := s.AdoptListeners(listeners)
	if err != nil {
		return nil, err
	}
	open()
	c.within(answerWithin)
	if live {
		live, err = adopt(c, s, can)
	}
	if err == nil {
		err = c.send(frameServing, nil)
	}
	if err != nil {
		if err := c.died(path, err); !errors.Is(err, ErrNobody) {
			return nil, err
		}
	}
	s.Serve()
	if err != nil {
		glog.Warningf("%s has ended while this process took over (%v): this process serves what it has", c.who(), err)
		c.Close()
		return nil, nil
	}
	what := "its listeners; its connections end there"
	if live {
		what = "its listeners, connections and sessions"
	}
	glog.Infof("took over from %s in %v: %s", c.who(), time.Since(began).Round(time.Millisecond), what)
	return c, nil
}

// hello waits for this process's turn, reserves the claim, and asks for the listeners. It returns what the predecessor can do, too.
func hello(c *conn, r *claim) (all []Item, can features, err error) {
	c.within(time.Until(r.turn))
	if err := c.peer.Distrust(); err != nil {
		return nil, 0, err
	}
	if err := c.send(frameHello, allFeatures.hello()); err != nil {
		return nil, 0, err
	}
	payload, err := c.expect(frameOffer)
	if err != nil {
		return nil, 0, err
	}
	c.within(answerWithin)
	o, err := parseOffer(payload)
	if err != nil {
		return nil, 0, err
	}
	if err := room(o.descriptors); err != nil {
		return nil, 0, err
	}
	r.reserve(c.ctx)
	if err := c.send(frameAccept, nil); err != nil {
		return nil, 0, err
	}
	for it, err := range c.items() {
		if err == nil && len(all) > maxListeners {
			closeAll(it.Descriptors)
			err = fmt.Errorf("more than %d listeners", maxListeners)
		}
		if err != nil {
			for _, it := range all {
				closeAll(it.Descriptors)
			}
			return nil, 0, err
		}
		it.Body = append([]byte(nil), it.Body...)
		all = append(all, it)
	}
	return all, o.features, nil
}

// maxListeners is more than there are ports, of both protocols, and what belongs to them.
const maxListeners = 1 << 18

// room returns an error if this process cannot have as many descriptors as another one has open, beside its own. It has the kernel make
// the table for them now: whenever the table of a process with several threads grows, all processors are waited for.
func room(descriptors uint32) error {
	own, err := openDescriptors()
	if err != nil {
		return err
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}
	if uint64(own)+uint64(descriptors) > limit.Cur {
		return fmt.Errorf("it has %d descriptors open, this process has %d, and may have %d (RLIMIT_NOFILE)", descriptors, own, limit.Cur)
	}
	if last, err := unix.FcntlInt(0, unix.F_DUPFD_CLOEXEC, own+int(descriptors)-1); err == nil { // else it grows later
		unix.Close(last)
	}
	return nil
}

// adopt asks for connections and sessions. It reports false if the predecessor ended before all had arrived.
func adopt(c *conn, s Successor, can features) (complete bool, err error) {
	if err := c.send(frameOpened, nil); err != nil {
		return false, err
	}
	if can&lends != 0 {
		if err := borrow(c, s); err != nil {
			return false, err
		}
	}
	if err := s.Adopt(c.items()); err != nil {
		return false, err
	}
	return true, nil
}

// borrow takes what the predecessor lends, up to a stream without items.
func borrow(c *conn, s Successor) error {
	for {
		n := 0
		err := s.Borrow(func(yield func(Item, error) bool) {
			for it, err := range c.items() {
				if n++; !yield(it, err) {
					return
				}
			}
		})
		if err != nil || n == 0 {
			return err
		}
		if err := c.send(frameTaken, nil); err != nil {
			return err
		}
	}
}

// died returns ErrNobody if the predecessor has ended, a [replacedError] if another process serves in its place, and else err, or what the
// predecessor said of it. An end of file does not tell: the predecessor may have given up. Nor does it tell that nobody waits at the path: a
// predecessor that gave up may drain by now.
func (c *conn) died(path string, err error) error {
	if err = c.lastWord(err); !gone(err) || c.ctx.Err() != nil {
		return err
	}
	now, _, failed := ask(c.ctx, path, helloWithin)
	switch {
	case errors.Is(failed, ErrNobody):
		return ErrNobody
	case failed == nil && now.PID != c.peer.PID:
		return &replacedError{c.who(), who(now), err}
	}
	return err
}

// lastWord returns err, which ended the conversation, or the refusal of a predecessor that gave up before: whoever sends does not hear it.
func (c *conn) lastWord(err error) error {
	if !gone(err) || errors.Is(err, io.EOF) {
		return err
	}
	c.within(helloWithin)
	for {
		f, said := c.receive()
		closeAll(f.descriptors)
		switch {
		case said == nil, errors.Is(said, syscall.ECONNRESET): // which the kernel tells before what was sent before
		case errors.Is(said, io.EOF):
			return err
		default:
			return said
		}
	}
}

// A replacedError is that the predecessor ended while it was taken over from, and another process serves by now.
type replacedError struct {
	ended, serves string
	cause         error
}

func (e *replacedError) Error() string {
	return fmt.Sprintf("%s has ended, and %s serves: %v", e.ended, e.serves, e.cause)
}

func (e *replacedError) Unwrap() error { return e.cause }

// Last yields what the predecessor tells at its end. It may be read once.
func (t *Taken) Last() iter.Seq2[Item, error] {
	if t.conn == nil {
		return func(func(Item, error) bool) {}
	}
	t.conn.within(lastWithin)
	return t.conn.items()
}

// Close lets the predecessor end, and other processes look for this one.
func (t *Taken) Close() {
	if t.conn != nil {
		t.conn.Close()
	}
	t.claim.leave()
}
