package proxytest

import (
	"testing"

	"kubeproxy/internal/freeport"
)

// FreePort returns a port that nobody listens on, by either protocol and in either family. It lies below Linux's range
// of ephemeral ports (32768 and up), so that no client of any test on this machine happens to be given it as its own.
func FreePort(t testing.TB) uint16 {
	t.Helper()
	port, err := freeport.Find(11000, 32000, 1)
	if err != nil {
		t.Fatal(err)
	}
	return port
}
