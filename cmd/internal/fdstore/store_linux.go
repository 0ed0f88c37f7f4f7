package fdstore

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/golang/glog"
	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

// A Store is the service manager's store. It implements proxy.Keeper, whose methods are for one goroutine; Sockets may be called beside them.
type Store struct {
	path     string                           // of the manager's socket
	max      int                              // how many descriptors it keeps
	kept     map[registry.ListenerID]struct{} // that it has
	toForget map[registry.ListenerID]struct{} // that it passed in vain, and has not heard so
	full     bool                             // a line of the log says so
	sockets  map[registry.ListenerID]int      // of the process before
}

// prefix begins the name of each socket in the store.
const prefix = "kube-proxy-tcp-"

// name ends in the port, or in the port and the address. A name has no colon, so an address of IPv6 is written with underscores.
func name(id registry.ListenerID) string {
	name := prefix + strconv.Itoa(int(id.Number))
	if id.Addr.IsValid() {
		name += "-" + strings.ReplaceAll(id.Addr.String(), ":", "_")
	}
	return name
}

// parseName is the inverse of name.
func parseName(text string) (id registry.ListenerID, ok bool) {
	rest, _ := strings.CutPrefix(text, prefix)
	digits, at, hasAddress := strings.Cut(rest, "-")
	number, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || number == 0 {
		return id, false
	}
	id = registry.ListenerID{Protocol: registry.TCP, Number: uint16(number)}
	if hasAddress {
		if id.Addr, err = netip.ParseAddr(strings.ReplaceAll(at, "_", ":")); err != nil {
			return id, false
		}
	}
	return id, name(id) == text
}

// Open returns the store of this process, or nil if it has none. It keeps those descriptors that were passed to this process which are listening sockets
// of the store, on bind, and closes the others. The manager has to close its copies of those, too; if it does not hear that now, Flush says it again.
// Child processes are passed none.
func Open(bind netip.Addr) (*Store, error) {
	return open(activation.Files(true), bind)
}

// open is Open with the descriptors that were passed, which it closes.
func open(passed []*os.File, bind netip.Addr) (*Store, error) {
	defer func() {
		for _, f := range passed {
			f.Close() // what is kept has a descriptor of its own
		}
	}()
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return nil, nil
	}
	limit := 0
	if text := os.Getenv("FDSTORE"); text != "" {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("FDSTORE is %.20q, which is no number", text)
		}
		limit = int(n)
	}
	s := &Store{path: path, kept: make(map[registry.ListenerID]struct{}), toForget: make(map[registry.ListenerID]struct{}), sockets: make(map[registry.ListenerID]int)}
	for _, f := range passed {
		id, ok := parseName(f.Name())
		if !ok {
			glog.Warningf("descriptor %.40q was passed by the service manager, and is not used", f.Name())
			continue
		}
		if err := s.add(id, f, bind); err != nil {
			glog.Warningf("the socket of %s was passed by the service manager, and is not used: %v", id, err)
			s.toForget[id] = struct{}{}
		}
	}
	if s.max = max(limit, len(s.sockets)+len(s.toForget)); s.max == 0 {
		return nil, nil
	}
	glog.Infof("the service manager keeps up to %d listening sockets; it has passed %d", s.max, len(s.sockets))
	if err := s.Flush(); err != nil {
		glog.Warningf("the service manager still has to close %d sockets that are not used: %v", len(s.toForget), err)
	}
	return s, nil
}

// add has the socket of f for a port, if it is one that listens there.
func (s *Store) add(id registry.ListenerID, f *os.File, bind netip.Addr) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var fd int
	controlErr := raw.Control(func(passed uintptr) {
		if id.Addr.IsValid() {
			bind = id.Addr
		}
		if err = listensOn(int(passed), netip.AddrPortFrom(bind, id.Number)); err == nil {
			fd, err = sockopt.Duplicate(int(passed))
		}
	})
	if err := errors.Join(controlErr, err); err != nil {
		return err
	}
	if _, twice := s.sockets[id]; twice {
		sockopt.EndListening(fd)
		return errors.New("there is another one")
	}
	s.sockets[id] = fd
	s.kept[id] = struct{}{}
	return nil
}

// listensOn returns an error unless fd is a TCP socket that listens on addr.
func listensOn(fd int, addr netip.AddrPort) error {
	switch listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); {
	case err != nil:
		return err
	case listens == 0:
		return errors.New("it does not listen")
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return err
	}
	var at netip.AddrPort
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		at = netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port))
	case *unix.SockaddrInet6:
		at = netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), uint16(name.Port))
	}
	// Package net opens [::] for 0.0.0.0, where there is IPv6.
	if at == addr || at.Port() == addr.Port() && at.Addr().IsUnspecified() && addr.Addr().IsUnspecified() {
		return nil
	}
	return fmt.Errorf("it listens on %s, not on %s", at, addr)
}

// Sockets returns the listening sockets of a process that was killed. The caller owns them. A second call returns none.
func (s *Store) Sockets() map[registry.ListenerID]int {
	sockets := maps.Clone(s.sockets)
	clear(s.sockets)
	return sockets
}

// Keep gives the manager a copy of a listening socket, if there is room. (The manager notices that it has the socket already.)
func (s *Store) Keep(id registry.ListenerID, descriptor int) (kept bool, err error) {
	if err := s.Flush(); err != nil {
		return false, err
	}
	if _, has := s.kept[id]; !has && len(s.kept) >= s.max {
		if !s.full {
			s.full = true
			glog.Warningf("the service manager keeps %d listening sockets, which is FileDescriptorStoreMax= of the unit: after a crash %s and others refuse clients until they are open again",
				s.max, id)
		}
		return false, nil
	}
	// FDPOLL=0: the manager need not watch the socket.
	if err := s.send("FDSTORE=1\nFDPOLL=0\nFDNAME="+name(id), unix.UnixRights(descriptor)); err != nil {
		return false, err
	}
	s.kept[id] = struct{}{}
	return true, nil
}

// Forget has the manager close its copy of the socket of a port. After an error the caller says it again: Flush does not.
func (s *Store) Forget(id registry.ListenerID) error {
	if err := s.Flush(); err != nil {
		return err
	}
	return s.forget(id)
}

// NoteKept notes the ports of which the manager has a socket already. Otherwise Keep would find room that there is not, and the manager does not say that it
// keeps nothing more.
func (s *Store) NoteKept(kept map[registry.ListenerID]struct{}) { maps.Copy(s.kept, kept) }

// Flush has the manager close what it passed to Open in vain, if it has not heard so yet.
func (s *Store) Flush() error {
	for id := range s.toForget {
		if err := s.forget(id); err != nil {
			return err
		}
		delete(s.toForget, id)
	}
	return nil
}

func (s *Store) forget(id registry.ListenerID) error {
	if err := s.send("FDSTOREREMOVE=1\nFDNAME="+name(id), nil); err != nil {
		return err
	}
	if _, had := s.kept[id]; had {
		delete(s.kept, id)
		s.full = false
	}
	return nil
}

// sendWithin is how long a message waits while the manager's queue is full.
const sendWithin = 5 * time.Second

// send sends a message to the manager.
func (s *Store) send(message string, rights []byte) error {
	// Not by package net: it does not send descriptors on a connected datagram socket.
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	limit := unix.NsecToTimeval(sendWithin.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &limit); err != nil {
		return err
	}
	for {
		err := unix.Sendmsg(fd, []byte(message), rights, &unix.SockaddrUnix{Name: s.path}, unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
