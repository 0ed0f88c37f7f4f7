package main

import (
	"fmt"
	"runtime"
	"testing"

	"kubeproxy/cmd/internal/programtest"
)

// TestTwoGoroutinesMoreRunAtATimeThanThereAreProcessors, or as many as GOMAXPROCS says.
func TestTwoGoroutinesMoreRunAtATimeThanThereAreProcessors(t *testing.T) {
	runtime.SetDefaultGOMAXPROCS() // what the program begins with
	for env, want := range map[string]int{"": runtime.GOMAXPROCS(0) + 2, "7": 7} {
		t.Run(env, func(t *testing.T) {
			addr, at := operatorsURL(t)
			programtest.Start(t, []string{"GOMAXPROCS=" + env}, "kube-proxy", "-etcd_servers=http://127.0.0.1:1", "-healthz_bind_address=", "-metrics_bind_address="+addr)
			awaitPage(t, at+"/metrics", 200, fmt.Sprintf("\ngo_sched_gomaxprocs_threads %d\n", want))
		})
	}
}
