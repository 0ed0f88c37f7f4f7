package etcdtest

import (
	"testing"

	"kubeproxy/internal/process"
)

// StartGRPCProxy starts etcd's own grpc-proxy before etcd, as a process that is killed when the test
// ends, and gives the URL that clients use instead of etcd's. To each client the proxy is an etcd that
// never answers a progress request, and whose watches outlive the etcd behind it.
func StartGRPCProxy(t testing.TB, etcd *Process) (url string) {
	t.Helper()
	addr, p, err := process.StartGRPCProxy(t.TempDir(), "", lowPort, highPort, etcd.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	return "http://" + addr
}
