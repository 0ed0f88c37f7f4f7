package etcdconfig

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// A service may have the local port of a connection to etcd.
func TestAListenerOpensOnTheLocalPortOfAConnectionToEtcd(t *testing.T) {
	member, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	// Connections of other programs may share the local port, and keep a listener from it. So several ports are tried.
	for range 20 {
		if err = listenAtLocalPort(t, member.Addr().String()); !errors.Is(err, syscall.EADDRINUSE) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// listenAtLocalPort opens and closes a listener at the local address of a connection to addr.
func listenAtLocalPort(t *testing.T, addr string) error {
	conn, err := dialOne(t.Context(), addr, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l, err := net.Listen("tcp", conn.LocalAddr().String())
	if err == nil {
		err = l.Close()
	}
	return err
}
