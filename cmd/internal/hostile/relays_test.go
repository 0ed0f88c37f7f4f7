//go:build linux

package hostile

import (
	"fmt"
	"io"
	"net"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

// TestUploadsThatAreResetBeforeTheyAreRead: clients send to an endpoint that does not read, and reset. What they have
// sent still waits for the endpoint, and costs nothing while it waits. Judged beside uploads of the bytes that find room, to an endpoint
// that reads, at the same pace; they end at the same time, by FIN.
func TestUploadsThatAreResetBeforeTheyAreRead(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const port, mute, rate = "7305", "127.0.0.1:7105", 3000
	clients := number(3000, 300)
	proxytest.MustRun(t, "sh", "-c", "echo 4096 16384 65536 >/proc/sys/net/ipv4/tcp_wmem && echo 4096 16384 65536 >/proc/sys/net/ipv4/tcp_rmem")
	s := attacked(t)
	s.service(t, "mute", port, "TCP", mute)
	eventually(t, func() bool {
		return roundTrip(at(port), time.Millisecond) != nil && s.sum(t, "kubeproxy_listeners") == 5
	}, "the service is open")
	upload := func(t *testing.T, to string, size int, end string) (sent int, over func()) {
		p := cast(t, "uploader", to, clients, rate, size, end)
		p.Stdout.Wait(t, "done: ")
		if _, err := fmt.Sscanf(p.Stdout.String(), "ready\ndone: %d", &sent); err != nil {
			t.Fatal(err)
		}
		return sent, func() {
			dismiss(t, p)
			eventually(t, func() bool { return s.sum(t, "kubeproxy_connections_active") == 0 }, "the connections are gone")
		}
	}
	attack := func(t *testing.T, atProxy bool) (sent int, over func()) {
		endpoint, aim := cast(t, "mute", mute), mute
		if atProxy {
			aim = at(port)
		}
		sent, gone := upload(t, aim, 512<<10, byReset)
		return sent, func() {
			dismiss(t, endpoint)
			gone()
		}
	}
	sent, over := attack(t, true)
	over()
	least, want := sent, sent/clients*clients
	s.innocent = func(t *testing.T) func() {
		got, over := upload(t, at(silentPort), sent/clients, byFIN)
		least = min(least, got)
		return over
	}
	r := s.withstands(t, fmt.Sprintf("%d clients that send 512 kB to an endpoint that does not read, and reset", clients), base+uint64(clients)*connectionBytes, func(t *testing.T, atProxy bool) func() {
		_, over := attack(t, atProxy)
		return over
	})
	if least < want*9/10 { // a busy machine takes more than the second for some
		r.tooSlow(t, "of %d bytes of uploads that are read, %d found room", want, least)
	}
	r.Refused = told(s.ended(t, "kubeproxy_connections_ended_total", "mute"))
	r.judge(t)
}

// TestUrgentDataHoldsUpNothing: a client sends text, one urgent byte and more text in one go, as telnet does. All of it
// arrives, in its order.
func TestUrgentDataHoldsUpNothing(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := attacked(t)
	for i := range 8 {
		conn, err := net.Dial("tcp4", at(bystanderPort))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(patience))
		echo := func(want string) {
			t.Helper()
			got := make([]byte, len(want))
			if n, err := io.ReadFull(conn, got); string(got) != want {
				t.Errorf("client %d got %q back (%v); want %q", i, got[:n], err, want)
			}
		}
		if _, err := io.WriteString(conn, "hello"); err != nil {
			t.Fatal(err)
		}
		echo("hello")
		s.proxy.Signal(t, syscall.SIGSTOP) // so that all is in the queue before any of it is read
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			for _, part := range []struct {
				text  string
				flags int
			}{{"before", 0}, {"!", unix.MSG_OOB}, {"after", 0}} {
				if err == nil {
					err = unix.Sendto(int(fd), []byte(part.text), part.flags, nil)
				}
			}
		}); err != nil {
			t.Error(err)
		}
		s.proxy.Signal(t, syscall.SIGCONT)
		if err != nil {
			t.Fatal(err)
		}
		echo("before!after")
	}
	s.works(t)
	r := s.row(t, "urgent data between two pieces of text", base)
	r.Refused = "nothing"
	r.judge(t)
}

// TestStalledReadersSlowNobodysBulk: one client downloads without end beside 33 that ask for the same and do not read.
func TestStalledReadersSlowNobodysBulk(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const stalled = 33
	s := attacked(t)
	conn, err := net.Dial("tcp4", at(floodPort))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "give me everything\n"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 1<<20)
	rate := func(periods int) float64 { // bytes in a second
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		total, began := 0, time.Now()
		for time.Since(began) < time.Duration(periods*number(1000, 100))*time.Millisecond {
			n, err := conn.Read(buf)
			if err != nil {
				t.Fatal(err)
			}
			total += n
		}
		return float64(total) / time.Since(began).Seconds()
	}
	var ratios []float64
	for range number(7, 1) {
		rate(1) // the kernel grows its buffers
		alone := rate(1)
		all := crowd(t, at(floodPort), "give me everything", stalled, 1000)
		rate(2) // until their buffers are full. Who pauses here measures how long the kernel takes to resume a transfer
		ratios = append(ratios, rate(1)/alone)
		for _, p := range all {
			dismiss(t, p)
		}
		eventually(t, func() bool { return s.sum(t, "kubeproxy_connections_active", "service", "default/flood") == 1 }, "the readers are gone")
	}
	slices.Sort(ratios)
	s.works(t)
	r := s.row(t, fmt.Sprintf("%d stalled readers beside a download, which has %.2f of its rate", stalled, ratios), base+stalled*connectionBytes)
	if got := ratios[len(ratios)/2]; *full && got < 0.9 {
		r.tooSlow(t, "beside stalled readers the download has %.2f of its rate, of %.2f; want 0.9", got, ratios)
	}
	r.Refused = "nothing"
	r.judge(t)
}
