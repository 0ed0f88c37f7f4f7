//go:build linux

package sockopt

import (
	"net"
	"testing"

	"kubeproxy/proxy/proxytest"
)

func TestAQueueThatIsHalfFullIsCrowdedUntilItIsRead(t *testing.T) {
	conn := proxytest.NewUDPSocket(t) // which is not read
	if err := conn.SetReadBuffer(1 << 16); err != nil {
		t.Fatal(err)
	}
	var q UDPQueue
	if err := q.Init(conn); err != nil {
		t.Fatal(err)
	}
	client := proxytest.DialUDP(t, conn.LocalAddr().(*net.UDPAddr).AddrPort())
	sent := 0
	for ; !q.IsCrowded(); sent++ {
		if sent == 1000 {
			t.Fatalf("%d datagrams wait, and it is not crowded", sent)
		}
		client.Write(make([]byte, 100))
	}
	if sent < 10 {
		t.Errorf("%d datagrams are a crowd", sent)
	}
	for range sent {
		if _, err := conn.Read(make([]byte, 200)); err != nil {
			t.Fatal(err)
		}
	}
	if q.IsCrowded() {
		t.Error("it is crowded although all was read")
	}
}
