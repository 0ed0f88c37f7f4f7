//go:build linux

package measure

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUOf gives the processor time, in nanoseconds, that processes have used, all their threads
// together.
//
// It is the same figure that /proc/PID/task/*/schedstat begins with, from the clock of the whole
// process instead of the files of its threads: those lose what ended threads had used, and are read
// one after the other. The kernel charges what it does for a system call, and the interrupts that
// happen meanwhile, to the thread; so a packet that crosses the loopback interface counts for who
// sent it.
func CPUOf(pids []int) (time.Duration, error) {
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

// AnonymousMemory gives the RssAnon of processes, in bytes: memory of their own that is really
// there. (RSS would count the program's text, which differs with what else was read from the disk.)
func AnonymousMemory(pids []int) (float64, error) { return memory(pids, "RssAnon") }

// ResidentMemory gives the VmRSS of processes, in bytes: all memory of theirs that is really there, the
// program's text included.
func ResidentMemory(pids []int) (float64, error) { return memory(pids, "VmRSS") }

func memory(pids []int, field string) (float64, error) {
	total := 0.0
	for _, pid := range pids {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			return 0, err
		}
		bytes, err := parseStatus(string(text), field)
		if err != nil {
			return 0, fmt.Errorf("process %d: %w", pid, err)
		}
		total += bytes
	}
	return total, nil
}

func parseStatus(status, field string) (float64, error) {
	_, rest, ok := strings.Cut(status, "\n"+field+":")
	fields := strings.Fields(rest)
	if !ok || len(fields) < 2 || fields[1] != "kB" {
		return 0, fmt.Errorf("its status has no %s", field)
	}
	kb, err := strconv.ParseInt(fields[0], 10, 64)
	return float64(kb) * 1024, err
}

// DescriptorsOf counts the open descriptors of processes.
func DescriptorsOf(pids []int) (float64, error) {
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

// Family gives a process and all that descend from it.
func Family(pid int) ([]int, error) {
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

// Settle waits until a figure stays the same for a while, and gives it: collectors of garbage and
// closers of descriptors come later. It waits limit at most.
func Settle(ctx context.Context, limit time.Duration, read func() (float64, error)) (float64, error) {
	last, err := read()
	for same, deadline := 0, time.Now().Add(limit); err == nil && same < 5 && time.Now().Before(deadline); {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		}
		var figure float64
		if figure, err = read(); figure == last {
			same++
		} else {
			same, last = 0, figure
		}
	}
	return last, err
}
