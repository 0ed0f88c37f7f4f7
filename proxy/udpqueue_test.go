//go:build linux

package proxy

import (
	"net"
	"testing"

	"kubeproxy/proxy/proxytest"
)

func TestAQueueThatIsHalfFullIsCrowdedUntilItIsRead(t *testing.T) {
	conn := proxytest.NewUDPSocket(t) // which nobody reads
	must(t, conn.SetReadBuffer(1<<16))
	var q udpQueue
	must(t, q.init(conn))
	client := proxytest.DialUDP(t, conn.LocalAddr().(*net.UDPAddr).AddrPort())
	sent := 0
	for ; !q.isCrowded(); sent++ {
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
	if q.isCrowded() {
		t.Error("it is crowded although all was read")
	}
}
