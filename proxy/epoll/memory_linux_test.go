package epoll

import (
	"errors"
	"net/netip"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
)

// limitLockedMemory lets the thread of the test lock so much memory, as if its user were not root. The thread ends with the test, and so does the
// limit of the process.
func limitLockedMemory(t *testing.T, bytes uint64) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var capabilities [2]unix.CapUserData
	enginetest.Must(t, unix.Capget(&header, &capabilities[0]))
	capabilities[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	enginetest.Must(t, unix.Capset(&header, &capabilities[0]))
	var before unix.Rlimit
	enginetest.Must(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	enginetest.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: bytes, Max: before.Max}))
	t.Cleanup(func() { enginetest.Must(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)) })
}

// One entry and one buffer fit into a page or two, and those of a loop into some 72 KiB.
func TestARingIsTriedWithTheMemoryThatLoopsTake(t *testing.T) {
	limitLockedMemory(t, 32<<10)
	if err := TryRing(); !errors.Is(err, unix.ENOMEM) {
		t.Errorf("with 32 KiB: %v; want ENOMEM", err)
	}
}

// The limit is the user's: a predecessor may have locked the memory, or another program, since the rings were tried.
func TestAnEngineThatCannotHaveItsRingsServesWithout(t *testing.T) {
	proxytest.NothingLeaks(t)
	e, err := NewRing(engine.Config{BindAddress: proxytest.Loopback}.WithDefaults(), admit.NewOwnPorts(proxytest.Loopback))
	enginetest.Must(t, err)
	limitLockedMemory(t, 32<<10)
	addr := openEpollPort(t, e, proxytest.Identify("a"))
	if got := proxytest.WhoAnswers(t, netip.MustParseAddrPort(addr)); got != "a" {
		t.Errorf("answered by %q", got)
	}
	for _, l := range e.running() {
		if l.ring != nil {
			t.Errorf("loop %d has a ring", l.number)
		}
	}
}
