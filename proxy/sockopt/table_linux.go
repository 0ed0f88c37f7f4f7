package sockopt

import "golang.org/x/sys/unix"

// mostPrepared bounds what the table takes of the kernel's memory: 8 bytes for each descriptor.
const mostPrepared = 1 << 16

// PrepareDescriptors has the kernel make room for as many descriptors as this process may have open, up to 65,536. Without it the table of
// descriptors doubles whenever it is full, and in a process of several threads whoever opens that descriptor waits for all processors to
// notice (expand_fdtable in fs/file.c calls synchronize_rcu): 10 to 20 ms were measured, for which an event loop stands still. The table
// never shrinks.
func PrepareDescriptors() {
	last := min(DescriptorLimit(), mostPrepared) - 1
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return // whoever cannot have one descriptor will be told of it where it matters
	}
	defer unix.Close(fd)
	if high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, last); err == nil {
		unix.Close(high)
	}
}
