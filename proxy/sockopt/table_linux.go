package sockopt

import "golang.org/x/sys/unix"

// mostPrepared bounds what the table takes of the kernel's memory: 8 bytes for each descriptor.
const mostPrepared = 1 << 16

// PrepareDescriptors has the kernel make room for as many descriptors as this process may have open, up to 65,536. Without it the kernel
// doubles the table of descriptors when it is full. In a process with several threads the thread that opens the next descriptor then waits
// for an RCU grace period (expand_fdtable in fs/file.c calls synchronize_rcu): 10 to 20 ms were measured, which block an event loop. The
// table never shrinks. If there is no room, nothing is prepared.
func PrepareDescriptors() {
	last := min(DescriptorLimit(), mostPrepared) - 1
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return // the proxy reports a lack of descriptors when it opens its ports
	}
	defer unix.Close(fd)
	if high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, last); err == nil {
		unix.Close(high)
	}
}
