package operators

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// A Handed is an open address on its way from a process to its successor.
type Handed struct {
	Addr       string // as it was asked for
	Descriptor int
}

// Duplicate returns the open addresses with descriptors of their own, which are valid until release is called.
func (s *Server) Duplicate() (all []Handed, release func(), err error) {
	var files []*os.File
	release = func() {
		for _, f := range files {
			f.Close()
		}
	}
	for _, k := range s.sockets {
		k.opening.Lock()
		l, ok := k.listener.(*net.TCPListener)
		k.opening.Unlock()
		if !ok {
			continue // another program has the port
		}
		f, err := l.File()
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("%s: %w", k.flag, err)
		}
		files = append(files, f)
		raw, err := f.SyscallConn()
		if err == nil {
			err = raw.Control(func(fd uintptr) { all = append(all, Handed{k.addr.String(), int(fd)}) }) // Fd would make the listener block
		}
		if err != nil {
			release()
			return nil, nil, fmt.Errorf("%s: %w", k.flag, err)
		}
	}
	return all, release, nil
}

// Adopt takes an address that a predecessor had open, and owns its descriptor. It is called before Run. An address that
// no page asked for is closed.
func (s *Server) Adopt(h Handed) error {
	f := os.NewFile(uintptr(h.Descriptor), h.Addr)
	if f == nil {
		return errors.New("a descriptor that is not open")
	}
	defer f.Close()
	for _, k := range s.sockets {
		if k.listener == nil && k.addr.String() == h.Addr {
			l, err := net.FileListener(f) // has a descriptor of its own
			if err != nil {
				return fmt.Errorf("%s: %w", k.flag, err)
			}
			k.listener = l
			return nil
		}
	}
	return nil
}
