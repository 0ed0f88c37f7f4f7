package process

import (
	"fmt"
	"net"
	"testing"
)

func TestAPortWithAListenerIsNotFound(t *testing.T) {
	const low, high = 10304, 10309                   // in one block
	for i, network := range []string{"tcp", "udp"} { // 10305, 10308
		at := fmt.Sprintf("127.0.0.1:%d", low+1+3*i)
		if network == "tcp" {
			l, err := net.Listen(network, at)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			continue
		}
		c, err := net.ListenPacket(network, at)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	if base, err := FreePorts(low, high, 2); err != nil || base != low+2 {
		t.Errorf("found %d, %v; want %d, the only two in a row", base, err, low+2)
	}
	if base, err := FreePorts(low, high, 3); err == nil {
		t.Errorf("found three in a row at %d; want an error", base)
	}
}

func TestAPortIsNotGivenTwice(t *testing.T) {
	seen := make(map[uint16]bool)
	for range 50 {
		port, err := FreePorts(10400, 10900, 2)
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || seen[port+1] {
			t.Errorf("port %d is given twice", port)
		}
		seen[port], seen[port+1] = true, true
	}
}
