//go:build unix

package sockopt

import "golang.org/x/sys/unix"

// DescriptorLimit returns how many descriptors this process may have open. (The Go runtime raises
// the soft limit to the hard one when it starts.)
func DescriptorLimit() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024 // what POSIX systems have always granted
	}
	return int(min(limit.Cur, 1<<20))
}
