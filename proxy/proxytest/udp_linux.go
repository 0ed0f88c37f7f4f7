package proxytest

import "golang.org/x/sys/unix"

// Refuse has the kernel refuse what arrives from now on, as if the endpoint had ended. Unlike [UDPServer.Close] it loses nothing: the endpoint
// still receives what arrived before.
func (s *UDPServer) Refuse() {
	raw, err := s.conn.SyscallConn()
	if err != nil {
		s.t.Error(err)
		return
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		var own unix.Sockaddr
		if own, failed = unix.Getsockname(int(fd)); failed == nil {
			failed = unix.Connect(int(fd), own) // so nobody else's datagrams are for this socket
		}
	})
	if err != nil || failed != nil {
		s.t.Errorf("the endpoint goes on: %v, %v", err, failed)
	}
}
