//go:build !linux

package sockopt

// Lost: where we don't know how to ask, it is not known.
func Lost(int) (n uint32, ok bool) { return 0, false }

// QueueOf: where we don't know how to ask, no queue is known to be full.
func QueueOf(int) (used, most uint32, ok bool) { return 0, 0, false }

// Unread: where we don't know how to ask, nothing is known to wait.
func Unread(int) (n int) { return 0 }
