package ports

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

// LocalPorts is the range that the kernel takes the local ports of connections from.
func LocalPorts() (first, last uint16, ok bool) {
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 0, false
	}
	n, err := fmt.Sscan(string(text), &first, &last)
	return first, last, n == 2 && err == nil
}

// ReadLocalRange reads that range, and which ports of it are kept free. If the system does not say, it is the zero value.
func ReadLocalRange() LocalRange {
	first, last, ok := LocalPorts()
	if !ok {
		return LocalRange{}
	}
	reserved, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_reserved_ports")
	if err != nil {
		return LocalRange{Range: Range{first, last}}
	}
	return LocalRange{Range{first, last}, parseRanges(string(reserved))}
}

// parseRanges reads ports as the kernel lists them: 8080,9148-9150. What is no port is left out.
func parseRanges(list string) (ranges []Range) {
	for item := range strings.SplitSeq(strings.TrimSpace(list), ",") {
		first, last, isRange := strings.Cut(item, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 16)
		to, err2 := strconv.ParseUint(last, 10, 16)
		if err == nil && err2 == nil {
			ranges = append(ranges, Range{uint16(from), uint16(to)})
		}
	}
	slices.SortFunc(ranges, func(a, b Range) int { return int(a.First) - int(b.First) })
	return ranges
}
