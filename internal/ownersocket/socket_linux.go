package ownersocket

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Supported reports whether this system has such sockets.
const Supported = true

// A Socket is one that listens.
type Socket struct {
	*net.UnixListener
	path string
	own  os.FileInfo // of the file at path, as long as it is ours
	once sync.Once   // of Close
	err  error       // of Close
}

// Listen takes the place of the process that listened at path before. network is unix or unixpacket.
func Listen(network, path string) (*Socket, error) {
	if err := Check(path); err != nil {
		return nil, err
	}
	// rename(2) puts the new socket in the place of the old one, so that at each moment one of them answers there.
	fresh := path + freshSuffix
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	own := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if failed := raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); failed != nil { // before bind(2), which makes the file with it
			return failed
		}
		return os.NewSyscallError("fchmod", err)
	}}
	l, err := own.Listen(context.Background(), network, fresh)
	if err != nil {
		return nil, err
	}
	socket := l.(*net.UnixListener)
	socket.SetUnlinkOnClose(false) // by then it may be another process's
	info, err := os.Lstat(fresh)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		socket.Close()
		return nil, err
	}
	return &Socket{UnixListener: socket, path: path, own: info}, nil
}

// Close stops listening, and removes the file unless it is another process's by now. It acts once, and then returns the same error: after that the
// number of our file is free, and a file system such as ext4 gives it to the next file, which may be a successor's.
func (s *Socket) Close() error {
	s.once.Do(func() {
		if s.isOurs(s.path) {
			s.withdraw()
		}
		s.err = s.UnixListener.Close()
	})
	return s.err
}

func (s *Socket) isOurs(path string) bool {
	now, err := os.Lstat(path)
	return err == nil && os.SameFile(now, s.own)
}

// withdraw removes our file. A successor may replace it at any moment. So withdraw renames the file at the path first, and puts it back if it turns
// out to be a successor's.
func (s *Socket) withdraw() {
	aside := fmt.Sprintf("%s.%d", s.path, os.Getpid())
	if os.Rename(s.path, aside) == nil && !s.isOurs(aside) {
		err := unix.Renameat2(unix.AT_FDCWD, aside, unix.AT_FDCWD, s.path, unix.RENAME_NOREPLACE)
		if err != nil && !errors.Is(err, unix.EEXIST) { // a filter of system calls, or a file system, refuses it
			err = os.Rename(aside, s.path)
		}
		if err == nil {
			return
		}
	}
	_ = os.Remove(aside) // a file that is left behind does no harm
}

// PeerOf asks the kernel who is at the other end.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var peer *unix.Ucred
	if failed := raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); failed != nil {
		return Peer{}, failed
	}
	if err != nil {
		return Peer{}, os.NewSyscallError("SO_PEERCRED", err)
	}
	return Peer{PID: int(peer.Pid), UID: int(peer.Uid)}, nil
}
