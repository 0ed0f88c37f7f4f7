//go:build !linux

package sockopt

// PrepareDescriptors does nothing: what a table of descriptors costs when it grows is known of Linux only.
func PrepareDescriptors() {}
