package process

import (
	"fmt"
	"net"
	"os"
	"sync"
)

// portsMu guards nextPort.
var portsMu sync.Mutex

// nextPort has an entry for each block that this process holds: the first port that it has not looked at.
var nextPort = make(map[block]int)

// FreePorts returns the first of n ports in a row, between low and high and in one block, without a listener: by TCP or UDP,
// in either family, at any address. It looks at each port of the range once before it looks at one again. It is safe
// for concurrent use, and for processes that run at the same time.
//
// Callers pass a range of ports below the one that kernels take the ports of outgoing connections from (32768 and up on
// Linux): so no client of another test is given one of these ports as its own. Between the search and the caller's own listen call another
// process could find the same port. So each process searches only in blocks of 64 ports that it has claimed; portblock.go has the protocol.
func FreePorts(low, high uint16, n int) (uint16, error) {
	portsMu.Lock()
	defer portsMu.Unlock()
	first, last := blockOf(int(low)), blockOf(int(high))
	count := int(last-first) + 1
	for range 2 { // the second time from the beginning of each block
		for i := range count {
			// Processes begin at different blocks: fewer claims fail.
			b := first + block((os.Getpid()+i)%count)
			if _, held := nextPort[b]; !held {
				held, err := b.claim()
				if err != nil {
					return 0, fmt.Errorf("claim ports %d to %d: %w", b.low(), b.high(), err)
				}
				if !held {
					continue
				}
				nextPort[b] = b.low()
			}
			if port, ok := b.find(int(low), int(high), n); ok {
				return uint16(port), nil
			}
		}
		for b := first; b <= last; b++ {
			if _, held := nextPort[b]; held {
				nextPort[b] = b.low()
			}
		}
	}
	return 0, fmt.Errorf("no %d free ports in a row between %d and %d", n, low, high)
}

// find looks in one block that this process holds.
func (b block) find(low, high, n int) (port int, ok bool) {
	for base := max(low, nextPort[b]); base+n-1 <= min(high, b.high()); base++ {
		if allFree(base, n) {
			nextPort[b] = base + n
			return base, true
		}
		nextPort[b] = base + 1
	}
	return 0, false
}

func allFree(base, n int) bool {
	for i := range n {
		if !isFree(base + i) {
			return false
		}
	}
	return true
}

func isFree(port int) bool {
	defer forbidForks()()
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
