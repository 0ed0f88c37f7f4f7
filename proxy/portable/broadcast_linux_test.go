package portable

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/enginetest"
)

// A datagram to the broadcast address of a network has as many receivers as the network has machines. Of 127.0.0.1/8, which every
// machine has, it is this one.
func TestTheBroadcastAddressOfANetworkIsNotDialled(t *testing.T) {
	to := netip.MustParseAddrPort("127.255.255.255:9")
	b, err := dialUDPBackend(enginetest.NewRotation(enginetest.Address(1)).Endpoints()[0], to, time.Second)
	if err == nil {
		b.conn.Close()
	}
	if !errors.Is(err, syscall.EACCES) {
		t.Errorf("%v; want %v", err, syscall.EACCES)
	}
}
