package proxytest

import (
	"net"
	"runtime"
	"testing"

	"kubeproxy/internal/process"
)

// FreePort returns a closed port, by either protocol and in either family. It lies below Linux's range
// of ephemeral ports (32768 and up), so that no client of any test on this machine happens to be given it as its own.
func FreePort(t testing.TB) uint16 {
	t.Helper()
	port, err := process.FreePorts(11000, 32000, 1)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// NeedsAddresses skips the test when this machine lacks one of these addresses. Linux has all of 127.0.0.0/8, so that there the test
// fails instead; macOS has 127.0.0.1 alone until others are configured.
func NeedsAddresses(t testing.TB, ips ...string) {
	t.Helper()
	for _, ip := range ips {
		l, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
		switch {
		case err == nil:
			l.Close()
		case runtime.GOOS == "linux":
			t.Fatal(err)
		default:
			t.Skipf("this machine lacks an address that the test needs: %v", err)
		}
	}
}
