//go:build linux

package measure

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// SinceBoot reads the clock that all processes of a machine share.
func SinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic(err) // there is no Linux without it
	}
	return time.Duration(t.Nano())
}

// Machine describes where it was measured.
func Machine() string {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		panic(err) // it fails for a bad pointer only
	}
	model := "unknown processor"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if what, is, _ := strings.Cut(line, ":"); strings.TrimSpace(what) == "model name" {
				model = strings.TrimSpace(is)
				break
			}
		}
	}
	return fmt.Sprintf("%d processors (%s), Linux %s %s, %s", runtime.NumCPU(), model,
		unix.ByteSliceToString(name.Release[:]), unix.ByteSliceToString(name.Machine[:]), time.Now().UTC().Format("2006-01-02 15:04 UTC"))
}

// userHz is what /proc counts in, for every architecture that Go knows.
const userHz = 100

// A MachineTime is what /proc/stat says of all processors together.
type MachineTime struct {
	processors int
	idle       time.Duration // nothing to do, or waiting for a disk
	stole      time.Duration // taken by the hypervisor
}

// ReadMachineTime reads it.
func ReadMachineTime() (MachineTime, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return MachineTime{}, err
	}
	return parseStat(string(text))
}

// parseStat takes the first line of /proc/stat: "cpu", user, nice, system, idle, iowait, irq,
// softirq, steal, and more; a line for each processor
// follows. Idle time is kept exactly, while the kinds of busy time are sampled by
// the clock tick: so the caller subtracts it to get the busy time.
func parseStat(text string) (MachineTime, error) {
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < 9 || fields[0] != "cpu" {
		return MachineTime{}, fmt.Errorf("/proc/stat begins with %q", line)
	}
	var ticks [9]int64
	for i := 1; i < len(ticks); i++ {
		var err error
		if ticks[i], err = strconv.ParseInt(fields[i], 10, 64); err != nil {
			return MachineTime{}, fmt.Errorf("/proc/stat: %w", err)
		}
	}
	processors := strings.Count(text, "\ncpu")
	inTicks := func(n int64) time.Duration { return time.Duration(n) * time.Second / userHz }
	return MachineTime{processors: processors, idle: inTicks(ticks[4] + ticks[5]), stole: inTicks(ticks[8])}, nil
}

// BusyBetween gives the processor time that the whole machine used between two readings that lie
// elapsed apart: by whomever, in whatever way, the kernel's threads and interrupts included.
func BusyBetween(before, after MachineTime, elapsed time.Duration) time.Duration {
	all := elapsed * time.Duration(after.processors)
	return max(0, all-(after.idle-before.idle)-(after.stole-before.stole))
}

// BusyNow gives the share of the processors that are in use while we do nothing.
func BusyNow(ctx context.Context) (float64, error) {
	const long = 2 * time.Second
	at := time.Now()
	before, err := ReadMachineTime()
	if err != nil {
		return 0, err
	}
	select {
	case <-time.After(long):
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	after, err := ReadMachineTime()
	if err != nil {
		return 0, err
	}
	elapsed := time.Since(at)
	return BusyBetween(before, after, elapsed).Seconds() / (elapsed.Seconds() * float64(after.processors)), nil
}

// RaiseDescriptorLimit gives us and what we start all the descriptors that we may have, and says how
// many those are.
func RaiseDescriptorLimit() (int, error) {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0, errors.Join(errors.New("raise the limit of descriptors"), err)
	}
	return int(min(limit.Cur, 1<<20)), nil
}
