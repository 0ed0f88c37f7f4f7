package proxy

import (
	"fmt"
	"os"
)

// localPorts is the range that the kernel takes the local ports of connections from.
func localPorts() (first, last uint16, ok bool) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0, false
	}
	n, err := fmt.Sscan(string(text), &first, &last)
	return first, last, n == 2 && err == nil
}
