package etcdtest

import (
	"fmt"
	"io"
	"net"
	"os/exec"
	"testing"
	"time"
)

// StartGRPCProxy starts etcd's own grpc-proxy before etcd, as a process that is killed when the test
// ends, and gives the URL that clients use instead of etcd's. To each client the proxy is an etcd that
// never answers a progress request, and whose watches outlive the etcd behind it.
func StartGRPCProxy(t testing.TB, etcd *Process) (url string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	cmd := exec.Command(path, "grpc-proxy", "start", "--endpoints="+etcd.Addr(), "--listen-addr="+addr)
	endWithParent(cmd)
	cmd.Stdout, cmd.Stderr = io.Discard, io.Discard
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	for deadline := time.Now().Add(startTimeout); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			_ = conn.Close()
			return "http://" + addr
		}
		if time.Now().After(deadline) {
			t.Fatalf("grpc-proxy was not ready after %v: %v", startTimeout, err)
		}
	}
}
