//go:build linux

package hostile

import (
	"fmt"
	"net"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// TestReadersOfMetricsThatDoNotRead: six ask for /metrics and read none of it. Each scrape succeeds meanwhile.
func TestReadersOfMetricsThatDoNotRead(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	proxytest.MustRun(t, "sh", "-c", "echo 4096 16384 65536 >/proc/sys/net/ipv4/tcp_wmem")
	s := attacked(t)
	s.manyPorts(t, "listed", 11_000, 500, "127.0.0.1:1", claiming)
	eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == 504 }, "all ports are open")
	call(t, true, "127.0.0.1:11000-11499", 500, 2000)() // what was used is listed
	const readers, scrapes = 6, 20
	for range readers {
		conn := proxytest.DialNarrow(t, proxytest.On(10249), 4096)
		if _, err := fmt.Fprint(conn, "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(settled)
	eventually(t, func() bool { return s.page(t, metricsURL+"/metrics") != "" }, "the pages of the readers are made, which on a busy machine takes a while")
	failed := 0
	for range scrapes {
		if s.page(t, metricsURL+"/metrics") == "" {
			failed++
		}
	}
	if failed > 0 {
		t.Errorf("of %d scrapes %d failed", scrapes, failed)
	}
	r := s.row(t, fmt.Sprintf("%d readers of /metrics that do not read", readers), base)
	r.Refused = "nothing"
	r.judge(t)
}

// TestAFloodOfConnectsToHealthz from another address leaves probes their answers.
func TestAFloodOfConnectsToHealthz(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	connects := number(15_000, 3000)
	s := attacked(t)
	r := s.withstands(t, fmt.Sprintf("%d connects to /healthz's address in a second and a half", connects), base, func(t *testing.T, atProxy bool) func() {
		aim := sinkAddr
		if atProxy {
			aim = "127.0.0.1:10256"
		}
		all := crowd(t, aim, "", connects, 10_000)
		return func() {
			for _, p := range all {
				dismiss(t, p)
			}
		}
	})
	r.Refused = "the flood's connections, oldest first"
	r.judge(t)
}

// TestAHeldHealthzPortIsWaitedFor: another program has the port of /healthz for some seconds after the start.
func TestAHeldHealthzPortIsWaitedFor(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := foundSite(t).forAttack()
	holder, err := net.Listen("tcp4", "0.0.0.0:10256")
	if err != nil {
		t.Fatal(err)
	}
	s.start(t, "")
	time.Sleep(3 * time.Second)
	holder.Close()
	s.becomesReady(t)
	s.works(t)
	r := s.row(t, "a port of /healthz that another program has at the start", base)
	r.Refused = "nothing"
	r.judge(t)
}
