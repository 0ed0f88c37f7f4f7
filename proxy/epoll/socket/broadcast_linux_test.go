package socket

import (
	"net/netip"
	"syscall"
	"testing"
)

// A datagram to the broadcast address of a network has as many receivers as the network has machines. Of 127.0.0.1/8, which every
// machine has, it is this one.
func TestTheBroadcastAddressOfANetworkIsNotConnectedTo(t *testing.T) {
	to := netip.MustParseAddrPort("127.255.255.255:9")
	fd, errno := ConnectUDP(to)
	if errno == 0 {
		Close(fd)
	}
	if errno != syscall.EACCES {
		t.Errorf("%v; want %v", errno, syscall.EACCES)
	}
}
