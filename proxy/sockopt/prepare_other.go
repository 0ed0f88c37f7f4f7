//go:build !linux

package sockopt

import "syscall"

// PrepareDial is nil, which a net.Dialer takes for no preparation: what SO_REUSEADDR means for a connection differs from system to
// system. The network of js/wasm refuses a function.
var PrepareDial func(network, address string, raw syscall.RawConn) error
