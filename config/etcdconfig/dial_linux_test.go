package etcdconfig

import (
	"net"
	"strconv"
	"testing"
)

// A service may have the local port of a connection to etcd.
func TestAListenerOpensOnTheLocalPortOfAConnectionToEtcd(t *testing.T) {
	member, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	conn, err := dialOne(t.Context(), member.Addr().String(), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(conn.LocalAddr().(*net.TCPAddr).Port))
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}
