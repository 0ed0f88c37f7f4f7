//go:build !unix

package sockopt

// DescriptorLimit returns how many sockets this process may reasonably have open where the system
// sets no limit of its own.
func DescriptorLimit() int { return 16384 }
