package main

import (
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
)

// forbidRing has the kernel refuse io_uring to processes that the test starts, as Docker's default profile does (seccomp(2)). A filter is a
// thread's, and passes on to the processes that it starts; this thread ends with the test.
func forbidRing(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the number of the call, first in struct seccomp_data
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: unix.SYS_IO_URING_SETUP},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0); err != nil {
		t.Fatal(err)
	}
}

// Where io_uring is forbidden, -engine=auto serves, and says why by epoll.
func TestWhereTheRingIsForbiddenEpollServes(t *testing.T) {
	s := newSite(t)
	forbidRing(t)
	p := start(t, nil, "-etcd_servers", s.etcd.URL(), "-bind_address=127.0.0.1", "-healthz_bind_address=", "-metrics_bind_address=")
	s.opens(t)
	s.talk(t)
	p.Stderr.Wait(t, "the engine is epoll, for the ring engine cannot be used here: io_uring_setup: operation not permitted")
}

func TestAnEngineThatCannotBeUsedEndsTheProgram(t *testing.T) {
	forbidRing(t)
	p := programtest.Start(t, nil, "kube-proxy", "-engine=ring", "-etcd_servers=http://127.0.0.1:1")
	if code := p.Exit(t).ExitCode(); code != 1 {
		t.Errorf("status %d; want 1", code)
	}
	p.Stderr.Wait(t, "-engine=ring cannot be used here: io_uring_setup: operation not permitted")
}
