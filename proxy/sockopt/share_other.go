//go:build !linux

package sockopt

// SharePort does nothing: elsewhere a port at one address and at all addresses are two names, or they are not, whatever their sockets say.
func SharePort(int, bool) error { return nil }
