//go:build linux

package peers

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// kernelDrops adds up how many datagrams the kernel has dropped because the buffer of a UDP socket of
// these processes was full.
func kernelDrops(pids []int) (float64, error) {
	sockets := make(map[string]bool) // by inode
	for _, pid := range pids {
		links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		if err != nil {
			return 0, err
		}
		for _, link := range links {
			to, _ := os.Readlink(link) // one that is closed meanwhile is no socket of interest
			if inode, ok := strings.CutPrefix(to, "socket:["); ok {
				sockets[strings.TrimSuffix(inode, "]")] = true
			}
		}
	}
	total := 0
	for _, file := range []string{"/proc/net/udp", "/proc/net/udp6"} {
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			continue // no IPv6 here
		}
		if err != nil {
			return 0, err
		}
		n, err := parseDrops(string(text), sockets)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", file, err)
		}
		total += n
	}
	return float64(total), nil
}

// parseDrops adds up the last column of those lines whose tenth, the inode, is wanted.
func parseDrops(text string, inodes map[string]bool) (int, error) {
	total := 0
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		fields := strings.Fields(line)
		if i == 0 || len(fields) < 13 || !inodes[fields[9]] {
			continue
		}
		n, err := strconv.Atoi(fields[12])
		if err != nil {
			return 0, fmt.Errorf("line %d: %w", i+1, err)
		}
		total += n
	}
	return total, nil
}
