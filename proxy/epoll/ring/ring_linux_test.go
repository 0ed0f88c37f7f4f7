package ring

import (
	"bytes"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// own returns a ring that belongs to the test, and a pool of n buffers of so many bytes.
func own(t *testing.T, n, size int) (*Ring, *Buffers) {
	t.Helper()
	runtime.LockOSThread() // the thread ends with the test
	r, err := New(64)
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.NewBuffers(n, size)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Enable(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.Close()
		b.Close()
	})
	return r, b
}

// pair returns two ends of a connection. The first is in non-blocking mode.
func pair(t *testing.T, kind int) (ours, peer int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.SetNonblock(ends[0], true)
	t.Cleanup(func() {
		_ = unix.Close(ends[0]) // perhaps it is closed
		_ = unix.Close(ends[1])
	})
	return ends[0], ends[1]
}

// await waits for so many completions.
func await(t *testing.T, r *Ring, n int) (all []Completion) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); len(all) < n; {
		if time.Now().After(deadline) {
			t.Fatalf("%d completions; want %d", len(all), n)
		}
		room := make([]Completion, n)
		r.Submit()
		r.Wait(time.Second, true) // not at all if something has completed
		all = append(all, room[:r.Completions(room)]...)
	}
	return all
}

func write(t *testing.T, fd int, s string) {
	t.Helper()
	if _, err := unix.Write(fd, []byte(s)); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsReceivedIsInABufferUntilItIsGivenBack(t *testing.T) {
	r, b := own(t, 2, 100)
	ours, peer := pair(t, unix.SOCK_STREAM)
	for range 5 { // more often than there are buffers
		r.Receive(ours, b, true, 7)
		r.Submit()
		write(t, peer, "hello")
		done := await(t, r, 1)[0]
		id, said, has := b.Take(&done)
		if done.Data != 7 || done.Errno() != 0 || !has || string(said) != "hello" || b.Lent() != 1 {
			t.Fatalf("%+v, %q in a buffer: %v, %d lent", done, said, has, b.Lent())
		}
		b.GiveBack(id)
	}
	if b.Lent() != 0 {
		t.Errorf("%d buffers are lent in the end", b.Lent())
	}
}

// Any number of receives may wait with one buffer.
func TestAReceiveThatWaitsHoldsNoBuffer(t *testing.T) {
	r, b := own(t, 1, 100)
	var peers []int
	for i := range 100 {
		ours, peer := pair(t, unix.SOCK_STREAM)
		r.Receive(ours, b, true, uint64(i))
		peers = append(peers, peer)
	}
	r.Submit()
	for _, i := range []int{99, 0, 50} {
		write(t, peers[i], "x")
		done := await(t, r, 1)[0]
		id, _, has := b.Take(&done)
		if done.Data != uint64(i) || !has {
			t.Fatalf("%+v in a buffer: %v; want that of receive %d", done, has, i)
		}
		b.GiveBack(id)
	}
}

func TestAReceiveWithoutABufferFailsAndLosesNothing(t *testing.T) {
	r, b := own(t, 1, 100)
	first, peer := pair(t, unix.SOCK_STREAM)
	second, other := pair(t, unix.SOCK_STREAM)
	write(t, peer, "a")
	write(t, other, "b")
	r.Receive(first, b, false, 1)
	r.Receive(second, b, false, 2)
	all := await(t, r, 2)
	if all[0].Errno() != 0 || all[1].Errno() != unix.ENOBUFS {
		t.Fatalf("%+v", all)
	}
	id, _, _ := b.Take(&all[0])
	b.GiveBack(id)
	r.Receive(second, b, false, 2)
	done := await(t, r, 1)[0]
	if _, said, _ := b.Take(&done); string(said) != "b" {
		t.Errorf("received %q", said)
	}
}

// A send never waits: of what a socket does not take at once, the completion tells.
func TestASendTakesWhatTheSocketTakesAtOnce(t *testing.T) {
	r, _ := own(t, 1, 1)
	ours, peer := pair(t, unix.SOCK_STREAM)
	message := bytes.Repeat([]byte("x"), 8<<20)
	r.Send(ours, message, 1)
	done := await(t, r, 1)[0]
	if n := int(done.Result); n <= 0 || n >= len(message) {
		t.Errorf("the socket took %d of %d bytes", n, len(message))
	}
	r.Send(ours, message, 2)
	if done = await(t, r, 1)[0]; done.Data != 2 || done.Errno() != unix.EAGAIN {
		t.Errorf("a full socket: %+v; want EAGAIN", done)
	}
	_ = unix.Close(peer)
	r.Send(ours, message, 3)
	if done = await(t, r, 1)[0]; done.Errno() != unix.EPIPE {
		t.Errorf("a peer that has gone: %+v; want EPIPE", done) // and no SIGPIPE
	}
}

// The completion of a send does not end the wait that begins with it: otherwise each turn that sends would be followed by one that finds
// nothing to do.
func TestAWaitOutlastsTheSendsThatItSubmits(t *testing.T) {
	r, b := own(t, 1, 100)
	ours, peer := pair(t, unix.SOCK_STREAM)
	r.Receive(ours, b, true, 1)
	r.Send(ours, []byte("x"), 2)
	go func() {
		one := make([]byte, 1)
		_, _ = unix.Read(peer, one)
		_, _ = unix.Write(peer, one)
	}()
	r.Wait(10*time.Second, true)
	var room [4]Completion
	if n := r.Completions(room[:]); n != 2 || room[0].Data != 2 || room[1].Data != 1 {
		t.Errorf("%+v; want the send and the receive", room[:n])
	}
}

func TestAWaitEndsInTime(t *testing.T) {
	r, _ := own(t, 1, 1)
	for _, told := range []bool{false, true} {
		r.Wait(time.Millisecond, told)
		var room [1]Completion
		if n := r.Completions(room[:]); n != 0 {
			t.Errorf("%+v", room)
		}
	}
}

// More entries than the ring holds are submitted as they come.
func TestARingTakesAnyNumberOfEntries(t *testing.T) {
	r, _ := own(t, 1, 1)
	ours, peer := pair(t, unix.SOCK_STREAM)
	for i := range 100 {
		r.Send(ours, []byte("x"), uint64(i))
	}
	for i, done := range await(t, r, 100) {
		if done.Data != uint64(i) || done.Result != 1 {
			t.Fatalf("send %d: %+v", i, done)
		}
	}
	if n, err := unix.Read(peer, make([]byte, 200)); n != 100 {
		t.Errorf("%d bytes have arrived, %v", n, err)
	}
}

// A descriptor that is closed by the ring is closed after what was to be sent, and a receive that waits does not keep its socket open.
func TestADescriptorIsClosedAfterWhatWasAskedForBefore(t *testing.T) {
	r, b := own(t, 1, 100)
	ours, peer := pair(t, unix.SOCK_STREAM)
	r.Receive(ours, b, true, 1)
	r.Submit()
	r.Send(ours, []byte("bye"), 2)
	r.Cancel(1, 3)
	r.CloseDescriptor(ours, 4)
	for _, done := range await(t, r, 2) {
		if done.Data == 1 && done.Errno() != unix.ECANCELED || done.Data > 2 {
			t.Errorf("%+v", done)
		}
	}
	room := make([]byte, 10)
	if n, err := unix.Read(peer, room); string(room[:max(0, n)]) != "bye" {
		t.Errorf("read %q, %v", room[:max(0, n)], err)
	}
	if n, err := unix.Read(peer, room); n != 0 || err != nil {
		t.Errorf("read %d, %v; want the end", n, err)
	}
	if _, err := unix.FcntlInt(uintptr(ours), unix.F_GETFD, 0); err != unix.EBADF {
		t.Errorf("the descriptor is still open: %v", err)
	}
}

func TestPollTellsThatADescriptorCanBeRead(t *testing.T) {
	r, _ := own(t, 1, 1)
	ours, peer := pair(t, unix.SOCK_STREAM)
	r.Poll(ours, 5)
	r.Submit()
	write(t, peer, "x")
	if done := await(t, r, 1)[0]; done.Data != 5 || done.Errno() != 0 {
		t.Errorf("%+v", done)
	}
}
