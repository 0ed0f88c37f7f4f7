package takeover

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

func TestASuccessorIsGivenEverythingOnceAndInOrder(t *testing.T) {
	listeners := []Item{{Kind: 1, Body: []byte("tcp 80"), Descriptors: descriptors(t, 1)}, {Kind: 2}}
	var live []Item
	for i := range 300 {
		live = append(live, Item{Kind: 3, Body: bytes.Repeat([]byte{byte(i)}, i), Descriptors: descriptors(t, 2)})
	}
	live = append(live, Item{Kind: 4, Body: bytes.Repeat([]byte{7}, maxBody), Descriptors: descriptors(t, maxDescriptors)}, Item{Kind: 5})
	p := newRunning(listeners, live)
	path, handedOver := serve(t, p, Item{Kind: 6, Body: []byte("last")})
	s := new(fresh)
	taken, err := Take(t.Context(), path, s, s.open)
	if err != nil {
		t.Fatal(err)
	}
	for it, err := range taken.Last() {
		if err != nil {
			t.Fatal(err)
		}
		s.got = append(s.got, Item{Kind: it.Kind, Body: bytes.Clone(it.Body)})
	}
	taken.Close()
	if !<-handedOver {
		t.Error("the predecessor waits for another successor")
	}
	for _, it := range s.got {
		defer closeAll(it.Descriptors)
		for _, d := range it.Descriptors {
			if flags, err := unix.FcntlInt(uintptr(d), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
				t.Fatalf("descriptor %d has flags %#x, %v", d, flags, err)
			}
		}
	}
	if got, want := sum(s.got), sum(slices.Concat(listeners, live, []Item{{Kind: 6, Body: []byte("last")}})); !slices.Equal(got, want) {
		t.Errorf("it got %q; want %q", got, want)
	}
	if got, want := strings.Join(s.calls, " "), "listeners open adopt serve"; got != want {
		t.Errorf("the successor did %q; want %q", got, want)
	}
	if got, want := p.said(), "listeners freeze release"; got != want {
		t.Errorf("the predecessor did %q; want %q", got, want)
	}
}

// TestWhatIsLentGoesOverBeforeTheFreeze: all of it has been taken by then.
func TestWhatIsLentGoesOverBeforeTheFreeze(t *testing.T) {
	p := newRunning([]Item{{Kind: 1}}, []Item{{Kind: 4}})
	for range 3 {
		p.lent = append(p.lent, []Item{{Kind: 2, Body: []byte("half"), Descriptors: descriptors(t, maxDescriptors)}, {Kind: 3, Descriptors: descriptors(t, 2)}})
	}
	want := append(slices.Concat(p.lent...), Item{Kind: 4})
	path, handedOver := serve(t, p)
	s := new(fresh)
	taken, err := Take(t.Context(), path, s, s.open)
	if err != nil {
		t.Fatal(err)
	}
	taken.Close()
	if !<-handedOver {
		t.Error("the predecessor waits for another successor")
	}
	for _, it := range s.got {
		closeAll(it.Descriptors)
	}
	if got, want := sum(s.got[1:]), sum(want); !slices.Equal(got, want) {
		t.Errorf("it got %q; want %q", got, want)
	}
	if got, want := strings.Join(s.calls, " "), "listeners open borrow borrow borrow adopt serve"; got != want {
		t.Errorf("the successor did %q; want %q", got, want)
	}
	if got, want := p.said(), "listeners lend lend lend freeze release"; got != want {
		t.Errorf("the predecessor did %q; want %q", got, want)
	}
}

func TestASuccessorThatCannotAdoptGetsListenersOnly(t *testing.T) {
	p := newRunning([]Item{{Kind: 1}}, nil)
	path, handedOver := serve(t, p)
	s := &fresh{listenersOnly: true}
	taken, err := Take(t.Context(), path, s, s.open)
	if err != nil {
		t.Fatal(err)
	}
	taken.Close()
	if !<-handedOver || p.said() != "listeners release" || strings.Join(s.calls, " ") != "listeners open serve" {
		t.Errorf("the predecessor did %q, the successor %q", p.said(), s.calls)
	}
}

func TestNobodyWaitsWhereNobodyListens(t *testing.T) {
	path := place(t)
	check := func(when string) {
		t.Helper()
		s := new(fresh)
		taken, err := Take(t.Context(), path, s, s.open)
		if !errors.Is(err, ErrNobody) || len(s.calls) > 0 {
			t.Fatalf("%s: %v after %q", when, err, s.calls)
		}
		taken.Close()
		if err := Waits(t.Context(), path); !errors.Is(err, ErrNobody) {
			t.Errorf("%s: %v", when, err)
		}
	}
	check("without a file")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	l.socket.Close() // as the end of a process does
	check("after its end")
	if l, err = Listen(path); err != nil {
		t.Fatalf("the file that is left keeps us from listening: %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v; want mode 0600", info, err)
	}
	l.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestWhoListensLaterKeepsThePath(t *testing.T) {
	path := place(t)
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the first one has removed the file of the second: %v", err)
	}
}

func TestAPathThatOthersCouldReplaceIsRefused(t *testing.T) {
	path := place(t)
	file := path + "ome file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		path string
		mode os.FileMode
		want string
	}{
		{path, 0o777, "other users may write to"},
		{"relative", 0o700, "is not an absolute path"},
		{filepath.Join(filepath.Dir(path), strings.Repeat("x", 100)), 0o700, "longer than"},
		{file, 0o700, "is not a socket"},
	} {
		if err := os.Chmod(filepath.Dir(path), tt.mode); err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v; want %q", tt.path, l, err, tt.want)
		}
	}
}

// peer connects to path, and speaks for itself.
func peer(t *testing.T, path string) *conn {
	t.Helper()
	c, err := dial(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.within(30 * time.Second)
	return c
}

// TestWithoutTheWordThePredecessorGoesOn: whatever the successor does before, and however it ends. The predecessor is then ready for the next one.
func TestWithoutTheWordThePredecessorGoesOn(t *testing.T) {
	must := func(t *testing.T, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stream := func(t *testing.T, c *conn) {
		t.Helper()
		for it, err := range c.items() {
			must(t, err)
			closeAll(it.Descriptors)
		}
	}
	steps := []struct {
		name string
		do   func(*testing.T, *conn)
		did  string // by then
	}{
		{"hello", func(t *testing.T, c *conn) {
			must(t, c.send(frameHello, greeting()))
			_, err := c.expect(frameOffer)
			must(t, err)
		}, ""},
		{"accept", func(t *testing.T, c *conn) { must(t, c.send(frameAccept, nil)); stream(t, c) }, "listeners"},
		{"opened", func(t *testing.T, c *conn) { must(t, c.send(frameOpened, nil)); stream(t, c) }, "listeners freeze"},
	}
	for _, fault := range []struct {
		name string
		do   func(*testing.T, *conn)
	}{
		{"ends", func(t *testing.T, c *conn) { must(t, c.Close()) }},
		{"says nonsense", func(t *testing.T, c *conn) { must(t, c.send(200, []byte("?"))) }},
		{"refuses", func(t *testing.T, c *conn) { must(t, c.send(frameRefusal, []byte("no\nroom"))) }},
		{"says the wrong thing", func(t *testing.T, c *conn) { must(t, c.send(frameHello, greeting())) }},
		{"passes descriptors", func(t *testing.T, c *conn) { must(t, c.send(frameServing, nil, descriptors(t, 2)...)) }},
		{"says too much", func(t *testing.T, c *conn) {
			_, _, err := c.WriteMsgUnix(make([]byte, maxPayload+2), nil, nil)
			must(t, err)
		}},
	} {
		for n, step := range steps {
			t.Run(fault.name+" after "+step.name, func(t *testing.T) {
				p := newRunning([]Item{{Kind: 1, Descriptors: descriptors(t, 1)}}, []Item{{Kind: 2}, {Kind: 3, Descriptors: descriptors(t, 2)}})
				path, _ := serve(t, p)
				c := peer(t, path)
				for _, s := range steps[:n+1] {
					s.do(t, c)
				}
				fault.do(t, c)
				if end := <-p.ended; end != "thaw" {
					t.Errorf("it ended with %s", end)
				}
				if got, want := p.said(), strings.TrimSpace(step.did+" thaw"); got != want {
					t.Errorf("it did %q; want %q", got, want)
				}
				if err := Waits(t.Context(), path); err != nil {
					t.Errorf("then nobody waits: %v", err)
				}
			})
		}
	}
}

// TestABorrowerThatGivesUpIsNotWaitedFor: the predecessor goes on, and never freezes.
func TestABorrowerThatGivesUpIsNotWaitedFor(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(*conn) error
		did  string
	}{
		{"before it has taken anything", func(*conn) error { return nil }, "listeners lend thaw"},
		{"after the first stream", func(c *conn) error { return c.send(frameTaken, nil) }, "listeners lend lend thaw"},
		{"with the word", func(c *conn) error { return c.send(frameOpened, nil) }, "listeners lend thaw"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			one := []Item{{Kind: 2, Descriptors: descriptors(t, 2)}}
			p := newRunning(nil, nil)
			p.lent = [][]Item{one, one, one}
			path, _ := serve(t, p)
			c := peer(t, path)
			stream := func() error { return drained(c) }
			err := c.send(frameHello, lends.hello())
			_, e := c.expect(frameOffer)
			if err = errors.Join(err, e, c.send(frameAccept, nil), stream(), c.send(frameOpened, nil), stream(), tt.do(c)); err != nil {
				t.Fatal(err)
			}
			if strings.Count(tt.did, "lend") == 2 {
				if err := stream(); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			<-p.ended
			if got := p.said(); got != tt.did {
				t.Errorf("it did %q; want %q", got, tt.did)
			}
		})
	}
}

// TestNothingIsLentToAnEarlierRelease, which takes no offer but its own.
func TestNothingIsLentToAnEarlierRelease(t *testing.T) {
	p := newRunning(nil, nil)
	p.lent = [][]Item{{{Kind: 2}}}
	path, _ := serve(t, p)
	c := peer(t, path)
	err := c.send(frameHello, greeting())
	payload, e := c.expect(frameOffer)
	if err = errors.Join(err, e); err != nil || len(payload) != len(greeting())+4 {
		t.Fatalf("the offer is %q, %v", payload, err)
	}
	for _, say := range []frameType{frameAccept, frameOpened, frameServing} {
		if err := c.send(say, nil); err != nil {
			t.Fatal(err)
		}
		if say == frameServing {
			break
		}
		for _, err := range c.items() {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	<-p.ended
	if got, want := p.said(), "listeners freeze release"; got != want {
		t.Errorf("it did %q; want %q", got, want)
	}
}

// TestAPeerThatIsNoSuccessorChangesNothing before it has said hello.
func TestAPeerThatIsNoSuccessorChangesNothing(t *testing.T) {
	p := newRunning(nil, nil)
	path, _ := serve(t, p)
	for _, tt := range []struct {
		say  frameType
		with string
		want string
	}{
		{frameHello, "GET / HTTP/1.1\r\n\r\n some more to say", "it is no kube-proxy"},
		{frameHello, magic + "\x00\x09", "it speaks version 9 of the take-over, and this process version 1"},
		{frameServing, "", "awaiting hello: got serving"},
	} {
		c := peer(t, path)
		if err := c.send(tt.say, []byte(tt.with)); err != nil {
			t.Fatal(err)
		}
		_, err := c.receive()
		if refused, ok := errors.AsType[*refusedError](err); !ok || !strings.Contains(refused.reason, tt.want) {
			t.Errorf("%q is answered by %v; want %q", tt.with, err, tt.want)
		}
	}
	if got := p.said(); got != "" {
		t.Errorf("it did %q", got)
	}
}

// TestAStuckSuccessorIsNotWaitedFor while traffic stands still.
func TestAStuckSuccessorIsNotWaitedFor(t *testing.T) {
	p := newRunning(nil, []Item{{Kind: 2}})
	path, _ := serve(t, p)
	c := peer(t, path)
	for _, say := range []frameType{frameHello, frameAccept, frameOpened} {
		if err := c.send(say, greeting()); err != nil {
			t.Fatal(err)
		}
	}
	if end := <-p.ended; end != "thaw" || p.said() != "listeners freeze thaw" {
		t.Errorf("it did %q", p.said())
	}
	if err := c.send(frameServing, nil); !errors.Is(err, unix.EPIPE) {
		t.Errorf("then the word can be said: %v", err)
	}
}

// pair makes two ends of a conversation.
func pair(t *testing.T) (a, b *conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	end := func(fd int) *conn {
		f := os.NewFile(uintptr(fd), "")
		defer f.Close()
		socket, err := net.FileConn(f)
		if err != nil {
			t.Fatal(err)
		}
		c, err := newConn(t.Context(), socket.(*net.UnixConn))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	return end(fds[0]), end(fds[1])
}

// TestBothSidesAgreeWhetherTheWordWasSaid, when one gives up while the other says it.
func TestBothSidesAgreeWhetherTheWordWasSaid(t *testing.T) {
	outcomes := map[bool]int{}
	for range 300 {
		old, next := pair(t)
		begin, sent := make(chan struct{}), make(chan error, 1)
		go func() {
			<-begin
			sent <- next.send(frameServing, nil)
		}()
		close(begin)
		heard := word(old)
		if err := <-sent; (err == nil) != heard {
			t.Fatalf("sent: %v; heard: %v", err, heard)
		}
		outcomes[heard]++
		old.Close()
		next.Close()
	}
	t.Logf("said and heard %d times, neither %d times", outcomes[true], outcomes[false])
}

// A predecessor that a test plays, at its own path.
type played struct {
	t    *testing.T
	l    *Listener
	path string
}

func play(t *testing.T) *played {
	t.Helper()
	path := place(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return &played{t, l, path}
}

// accept waits for the successor; nil if the test does not wait for it any more.
func (p *played) accept() *conn {
	socket, err := p.l.socket.AcceptUnix()
	if err != nil {
		return nil
	}
	c, err := newConn(p.t.Context(), socket)
	if err != nil {
		p.t.Error(err)
		return nil
	}
	c.within(30 * time.Second)
	return c
}

// TestASuccessorServesOnlyWhatNobodyElseDoes: a predecessor that has ended leaves it what it was given completely; one that goes on, nothing.
func TestASuccessorServesOnlyWhatNobodyElseDoes(t *testing.T) {
	pipe := descriptors(t, 2)
	one := func(c *conn) error {
		_, err := c.sendItems(each([]Item{{Kind: 1, Body: []byte("x"), Descriptors: pipe}}))
		return err
	}
	await := func(c *conn, what frameType) error { _, err := c.expect(what); return err }
	hello := func(c *conn) error {
		return errors.Join(await(c, frameHello), c.send(frameOffer, offer{descriptors: 1}.payload()), await(c, frameAccept))
	}
	lending := func(c *conn) error { // up to a stream that was taken
		return errors.Join(await(c, frameHello), c.send(frameOffer, offer{1, lends}.payload()), await(c, frameAccept), one(c), await(c, frameOpened), one(c), await(c, frameTaken))
	}
	nothing := func(c *conn) error { _, err := c.sendItems(each(nil)); return err }
	all := func(c *conn) error { return errors.Join(hello(c), one(c), await(c, frameOpened), one(c)) }
	for _, tt := range []struct {
		name  string
		do    func(*conn) error
		lives bool   // the predecessor, after the conversation
		want  string // error
		calls string
	}{
		{"ends at once", func(c *conn) error { return await(c, frameHello) }, false, ErrNobody.Error(), ""},
		{"refuses at once", func(c *conn) error {
			return errors.Join(await(c, frameHello), c.send(frameRefusal, []byte("not now")))
		}, true, "goes on: awaiting offer:", ""},
		{"is of another version", func(c *conn) error {
			return errors.Join(await(c, frameHello), c.send(frameOffer, []byte(magic+"\x00\x02")))
		}, true, "goes on: it speaks version 2", ""},
		{"has more descriptors than we may", func(c *conn) error {
			return errors.Join(await(c, frameHello), c.send(frameOffer, offer{descriptors: 1 << 31}.payload()))
		}, true, "RLIMIT_NOFILE", ""},
		{"ends among its listeners", func(c *conn) error {
			return errors.Join(hello(c), c.send(frameItems, appendItem(nil, Item{Kind: 1, Descriptors: pipe}), pipe...))
		}, false, ErrNobody.Error(), ""},
		{"ends before its connections", func(c *conn) error { return errors.Join(hello(c), one(c), await(c, frameOpened)) }, false, "", "listeners open adopt serve"},
		{"gives up before its connections", func(c *conn) error { return errors.Join(hello(c), one(c), await(c, frameOpened)) }, true, "goes on", "listeners open adopt"},
		{"ends among its connections", func(c *conn) error {
			return errors.Join(hello(c), one(c), await(c, frameOpened), c.send(frameItems, appendItem(nil, Item{Kind: 1, Body: []byte("xyz")})[:9]))
		}, false, "", "listeners open adopt serve"},
		{"miscounts", func(c *conn) error {
			return errors.Join(hello(c), one(c), await(c, frameOpened), c.send(frameEnd, end{items: 1}.payload()))
		}, true, "0 items with 0 descriptors came", "listeners open adopt"},
		{"corrupts its connections", func(c *conn) error {
			return errors.Join(hello(c), one(c), await(c, frameOpened), c.send(frameItems, bytes.Repeat([]byte{255}, 100)))
		}, true, "an item with 65535 descriptors", "listeners open adopt"},
		{"refuses before the word", func(c *conn) error {
			// It stops to read before the last frame that the word answers, or the word might be said already.
			return errors.Join(hello(c), one(c), await(c, frameOpened), c.CloseRead(), one(c), c.send(frameRefusal, []byte("too late")))
		}, true, "goes on", "listeners open adopt"},
		{"gives up before the word, and drains", func(c *conn) error {
			return errors.Join(hello(c), one(c), await(c, frameOpened), c.CloseRead(), one(c), c.send(frameRefusal, []byte("too late")))
		}, false, "goes on: the other process says", "listeners open adopt"},
		{"gives up while it lends, and drains", func(c *conn) error {
			return errors.Join(lending(c), c.CloseRead(), one(c), c.send(frameRefusal, []byte("too late")))
		}, false, "goes on: the other process says", "listeners open borrow borrow"},
		{"refuses at once, and drains", func(c *conn) error {
			return errors.Join(await(c, frameHello), c.send(frameRefusal, []byte("not now")))
		}, false, ErrNobody.Error(), ""},
		{"ends while it lends", lending, false, "", "listeners open borrow borrow serve"},
		{"gives up while it lends", lending, true, "goes on", "listeners open borrow borrow"},
		{"ends after it has lent", func(c *conn) error { return errors.Join(lending(c), nothing(c)) }, false, "", "listeners open borrow adopt serve"},
		{"miscounts what it lends", func(c *conn) error { return errors.Join(lending(c), c.send(frameEnd, end{items: 1}.payload())) }, true,
			"0 items with 0 descriptors came", "listeners open borrow borrow"},
		{"ends before the word", func(c *conn) error { return errors.Join(all(c), c.Close()) }, false, "", "listeners open adopt serve"},
		{"ends after the word", func(c *conn) error { return errors.Join(all(c), await(c, frameServing)) }, false, "", "listeners open adopt serve"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := play(t)
			done := make(chan error, 1)
			go func() {
				c := p.accept()
				defer c.Close()
				if !tt.lives {
					defer p.l.socket.Close() // before the conversation, as far as the successor can see
				}
				err := tt.do(c)
				if tt.lives {
					c.Close()
					if ping := p.accept(); ping != nil { // is anybody there?
						if await(ping, framePing) == nil {
							_ = ping.send(framePong, nil)
						}
						ping.Close()
					}
				}
				done <- err
			}()
			s := new(fresh)
			taken, err := Take(t.Context(), p.path, s, s.open)
			p.l.socket.SetDeadline(past) // if there is no question
			if e := <-done; e != nil && !gone(e) {
				t.Errorf("the predecessor: %v", e)
			}
			if got := fmt.Sprint(err); tt.want == "" && err != nil || !strings.Contains(got, tt.want) {
				t.Errorf("%v; want %q", err, tt.want)
			}
			if got := strings.Join(s.calls, " "); got != tt.calls {
				t.Errorf("it did %q; want %q", got, tt.calls)
			}
			if taken != nil {
				for range taken.Last() {
				}
				taken.Close()
			}
			for _, it := range s.got {
				closeAll(it.Descriptors)
			}
		})
	}
}

// A successor whose predecessor ended in the middle, and was replaced by another process, does not say that it goes on.
func TestWhoServesIsNamedAsItIs(t *testing.T) {
	path, _ := serve(t, newRunning(nil, nil))
	c := peer(t, path)
	defer c.Close()
	if err := c.died(path, io.EOF); err != io.EOF {
		t.Errorf("while it waits for its successor: %v", err)
	}
	c.Close()
	c.peer.PID = 1
	if err := c.died(path, io.EOF); err == nil || !strings.HasPrefix(err.Error(), "process 1 has ended, and process "+fmt.Sprint(os.Getpid())+" serves") {
		t.Errorf("when another process serves: %v", err)
	}
}

// TestDescriptorsThatAreLostAreNoticed: the kernel drops those that exceed the limit of the receiver.
func TestDescriptorsThatAreLostAreNoticed(t *testing.T) {
	pipe := descriptors(t, 20)
	old, next := pair(t)
	if err := old.send(frameItems, appendItem(nil, Item{Descriptors: pipe}), pipe...); err != nil {
		t.Fatal(err)
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	free, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_DUPFD_CLOEXEC, 0) // the lowest number that is free
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(free)
	low := limit
	low.Cur = uint64(free) + 5
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	_, err = next.receive()
	if failed := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); failed != nil {
		t.Fatal(failed)
	}
	if err == nil || !strings.Contains(err.Error(), "descriptors were lost") {
		t.Errorf("%v; want it noticed", err)
	}
	again, err := unix.FcntlInt(uintptr(pipe[0]), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(again)
	if again != free {
		t.Errorf("descriptor %d is free and not %d: those that came are still open", again, free)
	}
}

// TestSessionsAreLentOnlyToASuccessorThatBorrowsThem: releases before it borrow connections alone.
func TestSessionsAreLentOnlyToASuccessorThatBorrowsThem(t *testing.T) {
	for _, tt := range []struct {
		can  features
		want bool
	}{{lends, false}, {allFeatures, true}, {allFeatures | 1<<9, true}} {
		p := newRunning(nil, nil)
		p.lent = [][]Item{{{Kind: 1}}}
		path, _ := serve(t, p)
		c := peer(t, path)
		err := c.send(frameHello, tt.can.hello())
		payload, e := c.expect(frameOffer)
		err = errors.Join(err, e)
		offered, e := parseOffer(payload)
		if err = errors.Join(err, e, c.send(frameAccept, nil), drained(c), c.send(frameOpened, nil), drained(c)); err != nil {
			t.Fatal(err)
		}
		c.Close()
		<-p.ended
		if p.sessions != tt.want || offered.features != tt.can&allFeatures {
			t.Errorf("features %b: sessions are lent: %v; want %v; the offer says %b", tt.can, p.sessions, tt.want, offered.features)
		}
	}
}

// drained reads a stream to its end.
func drained(c *conn) (err error) {
	for it, e := range c.items() {
		closeAll(it.Descriptors)
		err = errors.Join(err, e)
	}
	return err
}

// TestAPingThatIsGivenUpIsNoFailure: a process that waits asks each second, and takes over in the midst of it.
func TestAPingThatIsGivenUpIsNoFailure(t *testing.T) {
	path := place(t)
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	var failures atomic.Uint64
	l.Failures = &failures
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan bool)
	go func() { over <- l.Run(ctx, newRunning(nil, nil), func() []Item { return nil }) }()
	for i := range 20 {
		c, err := dial(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			if err := c.send(framePing, nil); err != nil {
				t.Fatal(err)
			}
		}
		c.Close()
	}
	if err := Waits(t.Context(), path); err != nil {
		t.Errorf("after that: %v", err)
	}
	if n := failures.Load(); n != 0 {
		t.Errorf("%d take-overs have failed", n)
	}
	cancel()
	<-over
	l.Close()
}
