//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
)

// A udpSocket is a line of /proc/net/udp. Ports are those of its two addresses.
type udpSocket struct {
	local, remote uint16
	drops         int
}

// udpSockets reads the table of the UDP sockets over IPv4 that a process sees.
func udpSockets(pid int) (all []udpSocket, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/udp", pid))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(text), "\n")[1:] {
		fields := strings.Fields(line)
		if len(fields) < 13 {
			continue
		}
		drops, err := strconv.Atoi(fields[12])
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/net/udp: %w", pid, err)
		}
		all = append(all, udpSocket{portOf(fields[1]), portOf(fields[2]), drops})
	}
	return all, nil
}

// portOf returns the port of an address as /proc has it.
func portOf(addr string) uint16 {
	_, port, _ := strings.Cut(addr, ":")
	n, _ := strconv.ParseUint(port, 16, 16)
	return uint16(n)
}

// queueDrops returns how many packets and datagrams the kernel has dropped on their way between sockets, in the network that a process has:
// in the queues of its devices, for want of a fragment, and by connection tracking, when two packets of one flow that is new were given
// different endpoints at once.
func queueDrops(pid int) (n int, err error) {
	err = errors.Join(
		eachLine(fmt.Sprintf("/proc/%d/net/dev", pid), func(fields []string) error {
			if len(fields) < 17 || !strings.HasSuffix(fields[0], ":") {
				return nil // a heading
			}
			received, err1 := strconv.Atoi(fields[4])
			sent, err2 := strconv.Atoi(fields[12])
			n += received + sent
			return errors.Join(err1, err2)
		}),
		eachLine(fmt.Sprintf("/proc/%d/net/snmp", pid), counters(&n, "Ip:", 10, "ReasmFails", "InDiscards")),
		eachLine(fmt.Sprintf("/proc/%d/net/stat/nf_conntrack", pid), counters(&n, "", 16, "insert_failed", "drop", "clashres")),
	)
	return n, err
}

// counters returns a function that adds some columns of a table to n. Its first line has their names. Lines of the table begin with a word.
func counters(n *int, word string, base int, columns ...string) func([]string) error {
	var names []string
	return func(fields []string) error {
		if word != "" && fields[0] != word {
			return nil
		}
		if names == nil {
			names = slices.Clone(fields)
			return nil
		}
		for i, name := range names {
			if slices.Contains(columns, name) {
				count, err := strconv.ParseUint(fields[i], base, 64)
				if err != nil {
					return err
				}
				*n += int(count)
			}
		}
		return nil
	}
}

// eachLine calls do with the words of each line of a file. Without the file there is nothing to count.
func eachLine(file string, do func(fields []string) error) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		if err == nil {
			err = do(strings.Fields(line))
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", file, err)
	}
	return err
}
