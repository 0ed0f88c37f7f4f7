package proxytest

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
)

// Ports for services are taken from below Linux's range of ephemeral ports (32768 and up), so that
// no client of any test on this machine happens to be given one as its own. Processes begin at
// different places, since several may be testing at once.
const (
	firstPort = 11000
	ports     = 21000
)

var nextPort = func() *atomic.Uint32 {
	n := new(atomic.Uint32)
	n.Store(uint32(os.Getpid()) * 61)
	return n
}()

// FreePort returns a port that nobody listens on, by either protocol and in either family.
func FreePort(t testing.TB) uint16 {
	t.Helper()
	for range ports {
		port := uint16(firstPort + nextPort.Add(1)%ports)
		if isFree(port) {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}

func isFree(port uint16) bool {
	addr := fmt.Sprintf(":%d", port)
	tcp, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", addr)
	if err != nil {
		return false
	}
	udp.Close()
	return true
}
