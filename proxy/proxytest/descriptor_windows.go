package proxytest

import "syscall"

// A descriptor is what package syscall calls a socket by.
type descriptor = syscall.Handle
