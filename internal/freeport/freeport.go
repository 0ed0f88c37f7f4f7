// Package freeport finds ports that nobody listens on, for tests, measurements and the chaos run.
//
// Every caller has a range of its own, below the range that kernels take the ports of outgoing connections from
// (32768 and up on Linux): so no client of another test is given one of these ports as its own.
package freeport

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
)

// next counts the ports that this process has looked at. Processes begin at different places, since several may look
// at once, and none looks at a port a second time before it has seen the whole range.
var next atomic.Uint32

func init() { next.Store(uint32(os.Getpid()) * 61) }

// Find returns the first of n ports in a row, between low and high, on which nobody listens: by TCP or UDP, in either
// family, at any address. It is safe for concurrent use.
func Find(low, high uint16, n int) (uint16, error) {
	places := uint32(int(high-low) - n + 1)
	for range places {
		base := low + uint16((next.Add(uint32(n))-uint32(n))%places)
		if allFree(base, n) {
			return base, nil
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row between %d and %d", n, low, high)
}

func allFree(base uint16, n int) bool {
	for i := range n {
		if !isFree(int(base) + i) {
			return false
		}
	}
	return true
}

func isFree(port int) bool {
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
