//go:build !unix

package proxy

// descriptorLimit returns how many sockets this process may reasonably have open where the system
// sets no limit of its own.
func descriptorLimit() int { return 16384 }
