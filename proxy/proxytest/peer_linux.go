package proxytest

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// A Peer is another machine: a network namespace, joined to the test's own by a pair of virtual
// Ethernet devices. What it opens stays open, but nothing more is heard of it, once its link is down.
type Peer struct {
	Here          netip.Addr // the test's own address on the link
	There         netip.Addr // the peer's
	Here6, There6 netip.Addr // likewise; zero: there is none
	tasks         chan func()

	here, there *os.File // the two network namespaces
}

// NewPeer makes another machine. The test must be in its own network (see [InOwnNetwork]).
func NewPeer(t *testing.T) *Peer { return newPeer(t, 0) }

// NewPeerOn makes one of several machines, each on a link of its own with addresses of both families: the number, from 1, is that of the link.
func NewPeerOn(t *testing.T, number byte) *Peer {
	t.Helper()
	p := newPeer(t, number)
	p.Here6, p.There6 = netip.AddrFrom16([16]byte{0: 0xfd, 3: 77, 5: number, 15: 1}), netip.AddrFrom16([16]byte{0: 0xfd, 3: 77, 5: number, 15: 2})
	MustRun(t, "ip", "addr", "add", p.Here6.String()+"/64", "dev", fmt.Sprint("here", number), "nodad")
	p.Do(t, func() error { return run("ip", "addr", "add", p.There6.String()+"/64", "dev", "there", "nodad") })
	return p
}

// newPeer makes a machine on a link, with addresses of IPv4.
func newPeer(t *testing.T, number byte) *Peer {
	t.Helper()
	if !Inside(t) {
		t.Fatal("a peer needs a network of the test's own")
	}
	p := &Peer{
		Here:  netip.AddrFrom4([4]byte{10, 77, number, 1}),
		There: netip.AddrFrom4([4]byte{10, 77, number, 2}),
		tasks: make(chan func()),
	}
	here := "here"
	if number > 0 {
		here += fmt.Sprint(number)
	}
	ready, ended := make(chan error), make(chan struct{})
	go func() {
		// The thread that left the others' network is not given back: it ends with the goroutine,
		// and the namespace and the pair of devices with it.
		defer close(ended)
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			p.there, err = os.Open(ownNamespace())
		}
		ready <- err
		for task := range p.tasks {
			task()
		}
	}()
	if err := <-ready; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(p.tasks); <-ended; p.there.Close() })

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	ours := ownNamespace()
	var err error
	if p.here, err = os.Open(ours); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.here.Close() })
	p.Do(t, func() error {
		return errors.Join(
			run("ip", "link", "add", "there", "type", "veth", "peer", "name", here, "netns", ours),
			run("ip", "addr", "add", p.There.String()+"/24", "dev", "there"),
			run("ip", "link", "set", "there", "up"),
			run("ip", "link", "set", "lo", "up"),
		)
	})
	MustRun(t, "ip", "addr", "add", p.Here.String()+"/24", "dev", here)
	MustRun(t, "ip", "link", "set", here, "up")
	return p
}

// ownNamespace names the network namespace of the thread that calls it. That of the process's id is the first thread's, which may be the
// peer's.
func ownNamespace() string { return fmt.Sprintf("/proc/%d/task/%d/ns/net", os.Getpid(), unix.Gettid()) }

// Within runs task on the peer as Do does, but on the goroutine that calls it: many may do so at once, and wait for a peer's answer.
func (p *Peer) Within(task func() error) error {
	runtime.LockOSThread()
	if err := unix.Setns(int(p.there.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter the peer's network: %w", err)
	}
	err := task()
	if back := unix.Setns(int(p.here.Fd()), unix.CLONE_NEWNET); back != nil {
		return fmt.Errorf("leave the peer's network: %w", back) // the thread stays locked, and ends with the goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// Do runs task on the peer: sockets that it opens are the peer's. It must not leave that to another
// goroutine, nor end the test.
func (p *Peer) Do(t *testing.T, task func() error) {
	t.Helper()
	done := make(chan error)
	p.tasks <- func() { done <- task() }
	if err := <-done; err != nil {
		t.Fatalf("on the peer: %v", err)
	}
}

// Vanish takes the peer's link down: whatever is sent to it is lost without a word.
func (p *Peer) Vanish(t *testing.T) {
	t.Helper()
	p.Do(t, func() error { return run("ip", "link", "set", "there", "down") })
}

// Unsent returns how many bytes written to a connection have not arrived at the other end yet
// (SIOCOUTQ, tcp(7)).
func Unsent(conn *net.TCPConn) (n int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	if cerr := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ) }); cerr != nil {
		return 0, cerr
	}
	return n, err
}
