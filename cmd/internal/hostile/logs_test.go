//go:build linux

package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// TestLogsThatCannotBeWritten: clients make thousands of lines of log and of connection log while the place that they
// go to blocks, is full or has gone. The process lives, carries traffic, and ends at SIGTERM with status 0.
func TestLogsThatCannotBeWritten(t *testing.T) {
	const pipe, stdout = `exec "$@" 2>"$DIR/pipe"`, `exec "$@" 1>"$DIR/pipe"`
	for _, c := range []struct {
		name, script string
		spoil        func(t *testing.T, pipe int)
		flags        []string
	}{
		{"log to a pipe that is not read", pipe, fill, nil},
		{"log to a pipe whose reader has left", pipe, leave, nil},
		{"log to a full device", `exec "$@" 2>/dev/full`, nil, nil},
		{"log files on a full disk", `mkdir "$DIR/log"; mount -t tmpfs -o size=64k log "$DIR/log"; head -c 56k /dev/zero >"$DIR/log/ballast"; exec "$@" -log_dir="$DIR/log"`,
			nil, []string{"-logtostderr=false", "-log_flush_frequency=100ms"}},
		{"connection log to a pipe that is not read", stdout, fill, []string{"-connection_log=-"}},
		{"connection log to a pipe whose reader has left", stdout, leave, []string{"-connection_log=-"}},
	} {
		inOwnNetwork(t, c.name, func(t *testing.T) {
			s := foundSite(t).forAttack()
			reader := openPipe(t, filepath.Join(s.dir, "pipe"))
			s.start(t, c.script, append(c.flags, "-v=2")...)
			s.becomesReady(t)
			if c.spoil != nil {
				c.spoil(t, reader)
			}
			n := number(1500, 300)
			r := s.withstands(t, c.name, base, func(t *testing.T, atProxy bool) func() { return call(t, atProxy, at(silentPort), n, 1000) })
			r.Refused = "nothing"
			s.proxy.Signal(t, syscall.SIGTERM)
			if end := s.proxy.Exit(t); !end.Success() {
				t.Errorf("at SIGTERM it ended with %v", end)
			}
			r.judge(t)
		})
	}
}

// openPipe makes a named pipe and holds it open for reading and writing.
func openPipe(t *testing.T, name string) int {
	t.Helper()
	if err := unix.Mkfifo(name, 0o600); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Open(name, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// fill writes to a pipe until it takes no more.
func fill(t *testing.T, pipe int) {
	t.Helper()
	for {
		if _, err := unix.Write(pipe, nothing[:1]); err == unix.EAGAIN {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// leave closes a pipe's only reader.
func leave(t *testing.T, pipe int) {
	t.Helper()
	if err := unix.Close(pipe); err != nil {
		t.Fatal(err)
	}
}

// TestSweptPortsMakeFewLines: one client asks at each of 14,000 ports whose endpoint refuses.
func TestSweptPortsMakeFewLines(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	// All of these ports are free: etcd's are below, local ports above.
	const first, each = 33_000, 1000
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_local_port_range", []byte("48000 60999"), 0); err != nil {
		t.Fatal(err)
	}
	services := number(14, 2)
	s := foundSite(t).forAttack()
	for i := range services {
		s.manyPorts(t, fmt.Sprint("swept-", i), first+i*each, each, "127.0.0.1:1", claiming)
	}
	log := filepath.Join(s.dir, "log")
	s.start(t, `exec "$@" 2>"$DIR/log"`)
	s.becomesReady(t)
	eventually(t, func() bool { return s.sum(t, "kubeproxy_listeners") == float64(4+services*each) }, "all ports are open")
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	had := size()
	r := s.withstands(t, "a client that sweeps 14,000 ports", portsMemory, func(t *testing.T, atProxy bool) func() {
		return call(t, atProxy, fmt.Sprintf("127.0.0.1:%d-%d", first, first+services*each-1), services*each, 7000)
	})
	if grown, most := size()-had, int64(s.rounds())*100<<10; grown > most {
		t.Errorf("it wrote %d bytes of log; want %d at most", grown, most)
	}
	r.Refused = told(s.ended(t, "kubeproxy_connections_ended_total", "swept-*"))
	r.judge(t)
}

// portsMemory is what the process may take for tens of thousands of ports that services ask for.
const portsMemory = 128 << 20
