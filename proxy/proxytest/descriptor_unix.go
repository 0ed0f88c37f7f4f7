//go:build unix

package proxytest

// A descriptor is what package syscall calls a socket by.
type descriptor = int
