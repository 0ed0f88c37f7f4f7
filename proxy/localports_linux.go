package proxy

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
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

// readLocalRange reads that range, and which ports of it are kept free. If the system does not say, it is the zero value.
func readLocalRange() localRange {
	first, last, ok := localPorts()
	if !ok {
		return localRange{}
	}
	reserved, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_reserved_ports")
	if err != nil {
		return localRange{first: first, last: last}
	}
	return localRange{first, last, parseRanges(string(reserved))}
}

// parseRanges reads ports as the kernel lists them: 8080,9148-9150. What is no port is left out.
func parseRanges(list string) (ranges []PortRange) {
	for item := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err == nil && err2 == nil {
			ranges = append(ranges, PortRange{uint16(from), uint16(to)})
		}
	}
	slices.SortFunc(ranges, func(a, b PortRange) int { return int(a.First) - int(b.First) })
	return ranges
}
