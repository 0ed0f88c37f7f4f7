package ownersocket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

func TestOnlyOurUserAndRootAreTrusted(t *testing.T) {
	for uid, trusted := range map[int]bool{os.Geteuid(): true, 0: true, 12345: false} {
		if err := (Peer{UID: uid}).Distrust(); (err == nil) != trusted {
			t.Errorf("user %d: %v", uid, err)
		}
	}
}

func directory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// TestASocketIsItsOwnersAndThatOfTheLastWhoListened: the one before does not remove it.
func TestASocketIsItsOwnersAndThatOfTheLastWhoListened(t *testing.T) {
	path := filepath.Join(directory(t), "socket")
	first, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v; want 0600", info.Mode(), err)
	}
	second, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	first.withdraw() // it has looked a moment too early
	first.Close()
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	peer, err := PeerOf(conn.(*net.UnixConn))
	if err != nil || peer.UID != os.Geteuid() || peer.PID != os.Getpid() {
		t.Errorf("the peer is %+v, %v", peer, err)
	}
	second.Close()
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the last one leaves the file: %v", err)
	}
}

// TestASuccessorKeepsItsSocketIfItsFileHasTheNumberOfTheOneBefore, which is closed twice, as net/http does.
func TestASuccessorKeepsItsSocketIfItsFileHasTheNumberOfTheOneBefore(t *testing.T) {
	path := filepath.Join(directory(t), "socket")
	first, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	second, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.own = second.own // ext4 does that to a new file, as a rule
	first.Close()
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	} else {
		conn.Close()
	}
}

// TestASuccessorKeepsItsSocketWhereRenameat2IsRefused, by a filter of system calls or a file system.
func TestASuccessorKeepsItsSocketWhereRenameat2IsRefused(t *testing.T) {
	path := filepath.Join(directory(t), "socket")
	first, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	second, err := Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	withdrawn := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}, // the number of the call
			{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_RENAMEAT2, Jf: 1},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
			{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
		}
		program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0)
		}
		first.withdraw()
		withdrawn <- err
	}()
	if err := <-withdrawn; err != nil {
		t.Fatal(err)
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Errorf("the successor's socket: %v", err)
	} else {
		conn.Close()
	}
}

func TestAPlaceWhereOthersCouldReplaceTheSocketIsRefused(t *testing.T) {
	dir := directory(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	loose := filepath.Join(dir, "loose")
	if err := errors.Join(os.Mkdir(loose, 0o700), os.Chmod(loose, 0o777)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"relative":                         "absolute",
		"/" + strings.Repeat("x", maxPath): "longer than",
		file:                               "is not a socket",
		filepath.Join(loose, "socket"):     "other users may write",
	} {
		if _, err := Listen("unix", path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v; want %q", path, err, want)
		}
	}
}
