//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// cpuOf gives the processor time, in nanoseconds, that processes have used, all their threads
// together.
//
// It is the same figure that /proc/PID/task/*/schedstat begins with, from the clock of the whole
// process instead of the files of its threads: those lose what ended threads had used, and are read
// one after the other. The kernel charges what it does for a system call, and the interrupts that
// happen meanwhile, to the thread; so a packet that crosses the loopback interface counts for who
// sent it.
func cpuOf(pids []int) (time.Duration, error) {
	var total time.Duration
	for _, pid := range pids {
		var t unix.Timespec
		if err := unix.ClockGettime(processClock(pid), &t); err != nil {
			return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
		}
		total += time.Duration(t.Nano())
	}
	return total, nil
}

// processClock gives the id of another process's clock, as clock_getcpuclockid(3) makes it: the
// inverted process id, and below it the kind: 2, what the scheduler measured, to the nanosecond.
func processClock(pid int) int32 { return int32(^pid<<3 | 2) }

// userHz is what /proc counts in, for every architecture that Go knows.
const userHz = 100

// A machineTime is what /proc/stat says of all processors together.
type machineTime struct {
	processors int
	idle       time.Duration // nothing to do, or waiting for a disk
	stole      time.Duration // taken by the hypervisor
}

func readMachineTime() (machineTime, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return machineTime{}, err
	}
	return parseStat(string(text))
}

// parseStat takes the first line of /proc/stat: "cpu", user, nice, system, idle, iowait, irq,
// softirq, steal, and more; a line for each processor
// follows. Idle time is kept exactly, while the kinds of busy time are sampled by
// the clock tick: so whoever wants the busy time subtracts.
func parseStat(text string) (machineTime, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return machineTime{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks [9]int64
	for i := 1; i < len(ticks); i++ {
		var err error
		if ticks[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return machineTime{}, fmt.Errorf("/proc/stat: %w", err)
		}
	}
	processors := strings.Count(text, "\ncpu")
	inTicks := func(n int64) time.Duration { return time.Duration(n) * time.Second / userHz }
	return machineTime{processors: processors, idle: inTicks(ticks[4] + ticks[5]), stole: inTicks(ticks[8])}, nil
}

// busyBetween gives the processor time that the whole machine used between two readings that lie
// elapsed apart: by whomever, in whatever way, the kernel's threads and interrupts included.
func busyBetween(before, after machineTime, elapsed time.Duration) time.Duration {
	all := elapsed * time.Duration(after.processors)
	return max(0, all-(after.idle-before.idle)-(after.stole-before.stole))
}

// anonymousMemory gives the RssAnon of processes, in bytes: memory of their own that is really
// there. (RSS would count the program's text, which differs with what else was read from the disk.)
func anonymousMemory(pids []int) (float64, error) {
	total := 0.0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		bytes, err := parseRssAnon(string(text))
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		total += bytes
	}
	return total, nil
}

func parseRssAnon(status string) (float64, error) {
	_, rest, ok := strings.Cut(status, "\nRssAnon:")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 || fields[1] != "kB" {
		return 0, fmt.Errorf("its status has no RssAnon")
	}
	kb, err := strconv.ParseInt(fields[0], 10, 64)
	return float64(kb) * 1024, err
}

// descriptorsOf counts the open descriptors of processes.
func descriptorsOf(pids []int) (float64, error) {
	total := 0
	for _, pid := range pids {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			return 0, err
		}
		total += len(entries)
	}
	return float64(total), nil
}

// family gives a process and all that descend from it.
func family(pid int) ([]int, error) {
	children := make(map[int][]int)
	files, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended
		}
		if child, parent, err := parseParent(string(text)); err == nil {
			children[parent] = append(children[parent], child)
		}
	}
	members := []int{pid}
	for i := 0; i < len(members); i++ {
		members = append(members, children[members[i]]...)
	}
	return members, nil
}

// parseParent takes the process and its parent out of /proc/PID/stat: the id, the name in
// parentheses (which may hold anything), the state, the parent.
func parseParent(stat string) (pid, parent int, err error) {
	end := strings.LastIndexByte(stat, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("%q has no name", stat)
	}
	if _, err = fmt.Sscanf(stat, "%d", &pid); err == nil {
		_, err = fmt.Sscanf(stat[end+1:], " %1s %d", new(string), &parent)
	}
	return pid, parent, err
}
