//go:build linux

package hostile

import (
	"fmt"
	"math"
	"syscall"
	"testing"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/proxy/proxytest"
)

// connectionBytes is what a connection may take of memory while its peer does not read: both directions' buffers, two
// goroutines, two sockets as package net has them.
const connectionBytes = (64 + 24) << 10

// base is what the process may have, whatever comes: it begins with about 20 MiB.
const base = 64 << 20

// A crowd is clients that connect and do nothing, in several processes, each with an address of its own.
func crowd(t *testing.T, to, line string, n, rate int) (processes []*programtest.Program) {
	t.Helper()
	const each = 5000 // of 28,000 local ports and 20,000 descriptors
	rate = max(1, rate*each/max(n, each))
	for i := 0; n > 0; i++ {
		some := min(n, each)
		processes = append(processes, cast(t, "silent", to, fmt.Sprintf("127.0.3.%d", 1+i), line, some, rate))
		n -= some
	}
	for _, p := range processes {
		p.Stdout.Wait(t, "done: ")
	}
	return processes
}

// refuses waits until the proxy has refused all whom it refuses of a silent crowd: those whom the kernel has connected may still be in line for that, and
// who is there when others leave is let in.
func (s *site) refuses(t *testing.T) {
	t.Helper()
	proxytest.Settled(t, func() int64 {
		ended := s.ended(t, "kubeproxy_connections_ended_total", "silent")
		return int64(ended["service_limit"] + ended["dial_limit"])
	}, settled)
}

// TestTwentyThousandSilentClients: as many are let in as there is room for, the rest is refused, and the
// proxy goes on as before: those who are connected, operators, etcd, UDP.
func TestTwentyThousandSilentClients(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	limitDescriptors(t, uint64(number(20_000, 4096)))
	clients, rate := number(20_000, 3000), 2000
	s := newSite(t, fmt.Sprintf("-max_connections_per_service=%d", number(7436, 1472))) // all that there are
	room := s.sum(t, "kubeproxy_limit_max", "limit", "connections")
	room -= math.Floor(room / 20) // the last twentieth is for services below their share (C24)
	active := func() float64 { return s.sum(t, "kubeproxy_connections_active", "service", "default/silent") }
	felt := s.beside(t, func(t *testing.T, atProxy bool) func() {
		aim := sinkAddr
		if atProxy {
			aim = at(silentPort)
		}
		all := crowd(t, aim, "", clients, rate)
		return func() {
			if atProxy {
				want := room - bystanders // they came first
				// Those beside them come and go, and what they have is counted a moment late.
				eventually(t, func() bool { return math.Abs(active()-want) <= bystanders }, "about %v clients are connected", want)
				s.refuses(t)
				s.works(t)
			}
			for _, p := range all {
				dismiss(t, p)
			}
			if atProxy {
				eventually(t, func() bool { return active() == 0 }, "the crowd is gone")
			}
		}
	})
	got := s.ended(t, "kubeproxy_connections_ended_total", "silent")
	// On a busy machine some never arrive, and some are too many for the endpoint before they are too many for the proxy.
	want := float64(s.rounds()) * (float64(clients) - room + bystanders)
	if refused := got["service_limit"] + got["dial_limit"]; refused > want+float64(s.rounds())*bystanders || refused < 0.9*want || got["service_limit"] < 0.8*want {
		t.Errorf("of %d clients in each round and room for %.0f, the proxy ended: %s; want service_limit %.0f", clients, room, told(got), want)
	}
	r := s.row(t, fmt.Sprintf("%d silent clients, room for %.0f", clients, room), base+uint64(room)*connectionBytes)
	r.Refused, r.Felt = told(got), felt
	r.judge(t)
}

// TestOneServicesCrowdLeavesRoomForOthers, with a limit for each service.
func TestOneServicesCrowdLeavesRoomForOthers(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	limit := number(2000, 500)
	s := newSite(t, fmt.Sprintf("-max_connections_per_service=%d", limit))
	crowd(t, at(silentPort), "", 2*limit, 4000)
	stand(t, at(bystanderPort)).leave(t) // new connections to another service
	s.works(t)
	s.refuses(t)
	got := s.ended(t, "kubeproxy_connections_ended_total", "silent")
	if got["service_limit"] != float64(limit) {
		t.Errorf("of %d clients and room for %d, the proxy ended: %s; want service_limit %d", 2*limit, limit, told(got), limit)
	}
	r := s.row(t, fmt.Sprintf("%d silent clients of a service that may have %d", 2*limit, limit), base+uint64(limit)*connectionBytes)
	r.Refused = told(got)
	r.judge(t)
}

// TestSlowReaders: thousands ask for an answer without end and read none of it.
func TestSlowReaders(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	readers := number(2000, 300)
	// What the kernel buffers is the kernel's to bound; a machine that runs tests has better things to do with it.
	proxytest.MustRun(t, "sh", "-c", "echo 4096 16384 65536 >/proc/sys/net/ipv4/tcp_wmem && echo 4096 16384 65536 >/proc/sys/net/ipv4/tcp_rmem")
	s := newSite(t)
	felt := s.beside(t, func(t *testing.T, atProxy bool) func() {
		aim := floods // what a sink is to them: the endpoint itself, which is not read from either
		if atProxy {
			aim = at(floodPort)
		}
		all := crowd(t, aim, "give me everything", readers, 400)
		return func() {
			if atProxy {
				proxytest.Settled(t, func() int64 { return int64(s.sum(t, "kubeproxy_received_bytes_total", "service", "default/flood")) }, settled)
				s.works(t)
			}
			for _, p := range all {
				dismiss(t, p)
			}
			if atProxy {
				eventually(t, func() bool { return s.sum(t, "kubeproxy_connections_active") == 0 }, "the readers are gone")
			}
		}
	})
	r := s.row(t, fmt.Sprintf("%d slow readers", readers), base+uint64(readers)*connectionBytes)
	ended := s.ended(t, "kubeproxy_connections_ended_total", "flood")
	if len(ended) != 1 || ended["client_reset"] == 0 {
		t.Errorf("slow readers ended: %s; want client_reset only", told(ended))
	}
	r.Refused, r.Felt = told(ended), felt
	r.judge(t)
}

// limitDescriptors bounds what this process and those that it starts may open.
func limitDescriptors(t *testing.T, n uint64) {
	t.Helper()
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		t.Fatal(err)
	}
}
