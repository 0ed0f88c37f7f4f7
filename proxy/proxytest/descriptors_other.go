//go:build !linux

package proxytest

import "testing"

// countsDescriptors reports whether the descriptors of this process can be listed.
const countsDescriptors = false

// Descriptors returns none: only Linux lists those of a process in a file system.
func Descriptors(testing.TB) []string { return nil }
