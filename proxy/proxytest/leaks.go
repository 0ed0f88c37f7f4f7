package proxytest

import (
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// NothingLeaks fails the test if, once everything that is cleaned up after this call has been,
// there are goroutines or descriptors that were not there when it was called. Call it first. Only on Linux it sees descriptors.
func NothingLeaks(t testing.TB) {
	t.Helper()
	warmUp(t)
	goroutines := goleak.IgnoreCurrent()
	before := Descriptors(t)
	t.Cleanup(func() {
		t.Helper()
		if left := Lingering(t, before, Patience); left != nil {
			t.Errorf("descriptors left open:\n\t%s", strings.Join(left, "\n\t"))
		}
		var err error
		if !Becomes(func() bool { // goleak itself waits for less than half a second
			err = goleak.Find(goroutines, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
			return err == nil
		}) {
			t.Errorf("goroutines left running: %v", err)
		}
	})
}

// Lingering waits until only the descriptors in before are open, and returns those that are still
// open besides when the time is up.
func Lingering(t testing.TB, before []string, within time.Duration) []string {
	t.Helper()
	for deadline := time.Now().Add(within); ; time.Sleep(5 * time.Millisecond) {
		left := slices.DeleteFunc(Descriptors(t), func(d string) bool { return slices.Contains(before, d) })
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return left
		}
		runtime.GC() // pipes that package net keeps for splice(2) are closed by the collector
	}
}

// Sockets counts the sockets that this process has open. It skips the test where they cannot be counted: everywhere but on Linux.
func Sockets(t testing.TB) int {
	t.Helper()
	if !countsDescriptors {
		t.Skip("the descriptors of a process cannot be listed on this system")
	}
	n := 0
	for _, d := range Descriptors(t) {
		if strings.Contains(d, " socket:") {
			n++
		}
	}
	return n
}

// warmUp makes the runtime open what it keeps open for good: the network poller's descriptors.
func warmUp(t testing.TB) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
