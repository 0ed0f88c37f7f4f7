package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
)

// A between stands between a predecessor and its successor, both real processes, and passes on what they say, with the descriptors. At
// one step of their conversation it stops, for the test to kill one of them.
type between struct {
	t       *testing.T
	front   raw    // where the successor asks
	back    string // where the predecessor waits
	at      step
	cut     bool          // nothing that is said after it is passed on
	reached chan struct{} // closed at the step
	goOn    chan struct{}
	release func() // closes goOn

	work sync.WaitGroup
	mu   sync.Mutex // guards the fields below
	open []int
	said map[byte]int // frames of each type
}

// A step is a frame that was said: the nth of its type.
type step struct {
	name string
	kind byte
	nth  int
}

// steps are the frames of a take-over, in their order. There are few connections, so all are lent in one stream; an end without items follows.
var steps = []step{
	{"hello", 1, 1}, {"offer", 2, 1}, {"accept", 4, 1}, {"listeners", 5, 1}, {"end of listeners", 6, 1}, {"opened", 7, 1},
	{"lent connections", 5, 2}, {"end of lent connections", 6, 2}, {"taken", 11, 1}, {"end of lending", 6, 3},
	{"connections", 5, 3}, {"end of connections", 6, 4}, {"the word", 8, 1},
}

// stand has b begin, and returns the path at which a successor is to ask.
func (b *between) stand(t *testing.T) (path string) {
	t.Helper()
	path = takeoverPath(t)
	b.t, b.front = t, newRaw(t, listenRaw(t, path))
	b.reached, b.goOn, b.said = make(chan struct{}), make(chan struct{}), make(map[byte]int)
	b.release = sync.OnceFunc(func() { close(b.goOn) })
	b.open = []int{b.front.fd}
	b.work.Go(func() {
		for {
			fd, _, err := unix.Accept4(b.front.fd, unix.SOCK_CLOEXEC)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			if err != nil {
				return // the test is over
			}
			b.join(fd)
		}
	})
	t.Cleanup(func() {
		b.release()
		b.mu.Lock()
		for _, fd := range b.open {
			_ = unix.Shutdown(fd, unix.SHUT_RDWR)
		}
		b.mu.Unlock()
		b.work.Wait()
		for _, fd := range b.open {
			unix.Close(fd)
		}
	})
	return path
}

// join connects one who asks to the predecessor. Once that has ended, nobody is let in any more: a socket whose process has ended
// refuses, too.
func (b *between) join(asks int) {
	answers, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		b.t.Error(err)
		return
	}
	b.mu.Lock()
	b.open = append(b.open, asks, answers)
	b.mu.Unlock()
	if err := unix.Connect(answers, &unix.SockaddrUnix{Name: b.back}); err != nil {
		_ = unix.Shutdown(b.front.fd, unix.SHUT_RDWR)
		_ = unix.Shutdown(asks, unix.SHUT_RDWR)
		return
	}
	b.work.Go(func() { b.pass(answers, asks) })
	b.work.Go(func() { b.pass(asks, answers) })
}

// pass moves frames from src to dst, until either is closed.
func (b *between) pass(dst, src int) {
	defer unix.Shutdown(dst, unix.SHUT_RDWR)
	buf, oob := make([]byte, 1<<17), make([]byte, unix.CmsgSpace(4*253))
	for {
		n, oobn, _, _, err := unix.Recvmsg(src, buf, oob, unix.MSG_CMSG_CLOEXEC)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			return
		}
		descriptors := passed(oob[:oobn])
		isStep := b.isStep(buf[0])
		if isStep {
			close(b.reached)
			<-b.goOn
		}
		var rights []byte
		if len(descriptors) > 0 {
			rights = unix.UnixRights(descriptors...)
		}
		err = unix.Sendmsg(dst, buf[:n], rights, nil, unix.MSG_NOSIGNAL)
		for _, fd := range descriptors {
			unix.Close(fd)
		}
		if err != nil || isStep && b.cut {
			return // dst was killed, or src after this frame
		}
	}
}

// breakOff ends the conversation, and leaves both processes.
func (b *between) breakOff() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, fd := range b.open[1:] { // the first is where a successor asks
		_ = unix.Shutdown(fd, unix.SHUT_RDWR)
	}
}

// passed returns the descriptors that came with a frame.
func passed(oob []byte) (all []int) {
	messages, _ := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		fds, _ := unix.ParseUnixRights(&m)
		all = append(all, fds...)
	}
	return all
}

// isStep reports whether the next frame, which is of this type, is the step.
func (b *between) isStep(kind byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said[kind]++
	return kind == b.at.kind && b.said[kind] == b.at.nth
}

// await waits for the step.
func (b *between) await() {
	b.t.Helper()
	select {
	case <-b.reached:
	case <-time.After(programtest.Patience):
		b.t.Fatalf("the conversation never comes to %q", b.at.name)
	}
}

// TestASuccessorThatIsKilledIsNotNoticed: SIGKILL at each step up to the word. The predecessor goes on, says so in one line, and can
// hand over to the next.
func TestASuccessorThatIsKilledIsNotNoticed(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path := takeoverPath(t)
	p := s.serve(t, "-takeover="+path, "-drain_timeout=1h")
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	leave := s.attend(t, "")
	c := s.talk(t)
	before := 0
	for _, at := range steps[:len(steps)-1] { // with the word it begins to serve
		t.Run(at.name, func(t *testing.T) {
			b := &between{back: path, at: at}
			next := s.start(t, "-takeover="+b.stand(t))
			b.await()
			kill(t, next)
			b.release()
			lines := func() int { return strings.Count(p.Stderr.String(), "this process goes on") }
			proxytest.Eventually(t, func() bool { return lines() > before }, "the predecessor says that it goes on")
			if n := lines() - before; n != 1 {
				t.Errorf("%d lines of the log say that it goes on", n)
			}
			before = lines()
			c.MustSay(t, "are you still there?")
		})
	}
	last := s.start(t, "-takeover="+path)
	last.Stderr.Wait(t, "listeners, connections and sessions")
	c.MustSay(t, "and now?")
	leave()
}

// TestAPredecessorThatIsKilledLeavesWhatItHasGiven: SIGKILL at each step. The successor serves. A connection goes on if it had been
// passed on with all others.
func TestAPredecessorThatIsKilledLeavesWhatItHasGiven(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for _, at := range steps {
		keeps := at.name == "end of connections" || at.name == "the word"
		t.Run(fmt.Sprintf("%s, keeps %v", at.name, keeps), func(t *testing.T) {
			path := takeoverPath(t)
			p := s.serve(t, "-takeover="+path, "-drain_timeout=1h")
			proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
			c := s.talk(t)
			b := &between{back: path, at: at, cut: true}
			next := s.start(t, "-takeover="+b.stand(t))
			b.await()
			kill(t, p)
			b.release()
			next.Stderr.Wait(t, "the first state is in force")
			s.opens(t)
			if keeps {
				c.MustSay(t, "are you still there?")
			} else if name, err := c.Say("are you still there?"); err == nil {
				t.Errorf("%s answers, but was not passed on", name)
			}
			s.talk(t).Conn.Close() // a new client
			c.Conn.Close()
			kill(t, next)
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// TestASuccessorThatNeverServesSavesNoState: the state of its services is not in force, and the file is its predecessor's.
func TestASuccessorThatNeverServesSavesNoState(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	path, dir := takeoverPath(t), filepath.Join(t.TempDir(), "state")
	s.serve(t, "-takeover="+path)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	b := &between{back: path, at: step{"opened", 7, 1}}
	next := s.start(t, "-takeover="+b.stand(t), "-state_dir="+dir)
	b.await()
	b.breakOff()
	b.release()
	if code := next.Exit(t).ExitCode(); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*.state")); err != nil || len(files) > 0 {
		t.Errorf("it leaves %q, %v", files, err)
	}
	s.talk(t).MustSay(t, "are you still there?")
}

// TestASuccessorThatIsLeftAloneAnswersOperators: its predecessor is killed, and its source cannot be read. Its routes end with it.
func TestASuccessorThatIsLeftAloneAnswersOperators(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	s := newSite(t)
	path, control := takeoverPath(t), takeoverPath(t)
	metrics, url := operatorsURL(t)
	p := s.serve(t, "-takeover="+path, "-service_cidr=10.96.0.0/12")
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	next := start(t, nil, "-registry_dir="+filepath.Join(t.TempDir(), "missing"), "-takeover="+path, "-service_cidr=10.96.0.0/12", "-metrics_bind_address="+metrics, "-control="+control)
	next.Stderr.Wait(t, "services cannot be read")
	time.Sleep(1500 * time.Millisecond) // longer than between two questions whether the predecessor is there
	const alone = "the predecessor has ended, or drains, and has handed over nothing"
	if strings.Contains(next.Stderr.String(), alone) || exists(control) {
		t.Error("it does not wait for its predecessor to end")
	}
	kill(t, p)
	next.Stderr.Wait(t, alone)
	awaitPage(t, url+"/readyz", 503, "not yet: nothing has been read")
	awaitPage(t, url+"/metrics", 200, "\nkubeproxy_ready 0\n")
	proxytest.Eventually(t, func() bool { return exists(control) }, "%s is there", control)
	next.Signal(t, syscall.SIGTERM)
	next.Exit(t)
	if n := routesListed(t); n != 0 {
		t.Errorf("after its end there are %d routes; want none", n)
	}
}
