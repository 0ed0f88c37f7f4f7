package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// The judges of memory, descriptors and the end: stages 13 to 15.

func judgeSlowReader(t *trial) {
	const all, most = 128 << 20, 64 << 20 // the sockets on the way hold less than 20 MiB
	block := make([]byte, 1<<20)
	random := rand.NewChaCha8([32]byte{})
	_, _ = random.Read(block) // never fails
	var left atomic.Int64
	big := t.endpoint("big", func(conn *net.TCPConn) {
		left.Store(0) // the last client counts
		for left.Load() < all {
			n, err := conn.Write(block)
			if left.Add(int64(n)); err != nil {
				return
			}
		}
		_ = conn.CloseWrite()
		_, _ = io.Copy(io.Discard, conn) // until the client goes
	})
	red := t.named("red")
	download, web := t.service("download", big.addr), t.service("web", red.addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	byHand := python(`c = socket.create_connection(("127.0.0.1", %d), 10); input("%d MiB wait; Enter reads "); `+
		`print(sum(map(len, iter(lambda: c.recv(1 << 20), b""))))`, download.port, all>>20)
	t.do(byHand, "a client of port %d, whose endpoint sends %d MiB, does not read", download.port, all>>20)
	conn := t.startsReading(download.port)
	flat, before := 0, int64(-1)
	t.soon(time.Minute, "the endpoint to wait for the client", func() error { // until nothing has left the endpoint for two seconds
		time.Sleep(100 * time.Millisecond)
		now := left.Load()
		if now > most {
			t.fail(fmt.Sprintf("less than %d MiB on the way", most>>20), "%d MiB have left the endpoint, and the client has read nothing", now>>20)
		}
		if flat++; now != before {
			flat, before = 0, now
		}
		if flat < 20 {
			return fmt.Errorf("%d MiB have left the endpoint, and more leave", now>>20)
		}
		return nil
	})
	t.say("  %d MiB are on the way", before>>20)
	t.asks(web.port, "red")

	t.do(byHand, "the client of port %d reads", download.port)
	want := sha256.New()
	for range all >> 20 {
		_, _ = want.Write(block) // never fails
	}
	t.must(conn.SetDeadline(time.Now().Add(time.Minute)))
	t.readsAll(conn, all, want)
}

// startsReading connects, and waits for the first byte, which it leaves in the socket.
func (t *trial) startsReading(port int) net.Conn {
	var conn net.Conn
	t.soon(startLimit, "a first byte", func() error {
		var err error
		if conn, err = net.DialTimeout("tcp", address(port), patience); err != nil {
			return plain(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := peek(conn.(*net.TCPConn)); err != nil {
			conn.Close()
			return plain(err)
		}
		return nil
	})
	t.atEnd(func() { conn.Close() })
	return conn
}

// peek waits until a byte has come, and leaves it there.
func peek(conn *net.TCPConn) (n int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(err, syscall.EAGAIN)
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

func (t *trial) readsAll(conn net.Conn, n int64, want hash.Hash) {
	got := sha256.New()
	k, err := io.Copy(got, conn)
	switch {
	case err != nil || k != n:
		t.fail(fmt.Sprintf("%d bytes", n), "%d bytes, then: %v", k, endOf(err))
	case string(got.Sum(nil)) != string(want.Sum(nil)):
		t.fail("the bytes that the endpoint has sent", "as many other bytes")
	}
}

// judgeDescriptors judges twice. A client takes two descriptors, so with one number the program runs out of them when it accepts a client, and
// with the next when it connects to the endpoint.
func judgeDescriptors(t *trial) {
	red := t.named("red")
	web := t.service("web", red.addr)
	for _, descriptors := range []int{64, 65} {
		t.start(descriptors)
		t.runsOut(web.port, descriptors)
		t.program.close()
		t.program = nil
		t.refused(web.port)
	}
}

func (t *trial) runsOut(port, descriptors int) {
	const clients = 200
	t.answered(port, startLimit, "red")
	t.do(crowdByHand(port, clients), "%d clients of port %d connect and stay; the program may have %d descriptors", clients, port, descriptors)
	// First one after the other, so that those that are being served take all descriptors: of a crowd a program may turn away everybody.
	var held []net.Conn
	for len(held) < clients {
		conn, err := net.DialTimeout("tcp", address(port), 3*time.Second)
		if err != nil {
			break
		}
		held = append(held, conn)
		if _, err := readName(conn, 3*time.Second); err != nil {
			break
		}
	}
	t.say("  client %d is not answered", len(held))
	rest := make(chan net.Conn, clients)
	var all sync.WaitGroup
	for range clients - len(held) {
		all.Go(func() {
			if conn, err := net.DialTimeout("tcp", address(port), 3*time.Second); err == nil { // else the queue of the port is full, as it may be
				rest <- conn
			}
		})
	}
	all.Wait()
	close(rest)
	for conn := range rest {
		held = append(held, conn)
	}
	t.atEnd(func() { closeAll(held) })
	t.say("  %d clients have connected", len(held))
	t.do("top -p "+itoa(t.program.PID()), "the program waits for descriptors")
	t.soon(12*time.Second, "a program that waits: no thread of it that runs or wants to run all the time", func() error {
		if busy := busiest(t.program.PID(), 2*time.Second); busy > 0.7 {
			return fmt.Errorf("a thread that runs or wants to run %.0f %% of the time", 100*busy)
		}
		return nil
	})
	closeAll(held)
	t.say("the clients leave")
	t.answered(port, startLimit, "red")
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		conn.Close()
	}
}

// busiest returns the part of a time that the busiest thread of a process was running, or ready to run and waiting for a processor. So a
// loop without a pause is seen on a machine whose processors others use, too.
func busiest(pid int, window time.Duration) float64 {
	began, before := time.Now(), wanted(pid)
	time.Sleep(window)
	most, took := time.Duration(0), time.Since(began)
	for thread, now := range wanted(pid) {
		most = max(most, now-before[thread])
	}
	return most.Seconds() / took.Seconds()
}

// wanted returns for each thread how long it has run, and waited for a processor.
func wanted(pid int) map[string]time.Duration {
	threads := make(map[string]time.Duration)
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return nil
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		for i, field := range strings.Fields(string(text)) {
			if n, err := strconv.ParseInt(field, 10, 64); err == nil && i < 2 {
				threads[path] += time.Duration(n)
			}
		}
	}
	return threads
}

func judgeDrain(t *trial) {
	red := t.named("red")
	web := t.service("web", red.addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	conn := t.connects(web.port)
	t.do("kill "+itoa(t.program.PID()), "the program gets SIGTERM")
	t.program.Signal(syscall.SIGTERM)
	t.do(askByHand(web.port), "port %d closes", web.port)
	t.closesPort(web.port)
	t.echoes(conn, 1000, talkByHand(web.port))
	conn.Close()
	t.do("echo $?", "the last client has gone, and the program ends")
	select {
	case <-t.program.Exited():
	case <-time.After(startLimit):
		t.fail("an end with exit status 0", "it still runs after %v", startLimit)
	}
	if state := t.program.State(); !state.Success() {
		t.fail("exit status 0", "%v", state)
	}
	t.program.close()
	t.program = nil
}

// closesPort is refused, for a program that may end meanwhile.
func (t *trial) closesPort(port int) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err != nil {
			return
		}
		conn.Close()
		if time.Since(began) > patience {
			t.fail("a closed port", "the port is open %v after SIGTERM", patience)
		}
	}
}
