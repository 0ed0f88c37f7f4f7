//go:build !linux

package sockopt

// BindAnywhere does nothing.
func BindAnywhere(int) error { return nil }
