package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kubeproxy/scripts/school/peer"
)

// The judges of memory, descriptors and the end: stages 13 to 15.

func judgeSlowReader(t *trial) {
	const all, most = 128 << 20, 64 << 20 // the sockets on the way hold less than 20 MiB
	block := peer.RandomBlock()
	var left atomic.Int64
	big := t.endpoint("big", peer.Download(block, all, &left))
	red := t.named("red")
	download, web := t.service("download", big.Addr), t.service("web", red.Addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	byHand := peer.Python(`c = socket.create_connection(("127.0.0.1", %d), 10); input("%d MiB wait; Enter reads "); `+
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
	t.readsAll(conn, block, all)
	t.leavesInTheMiddle(download.port)
	t.asks(web.port, "red")
}

// leavesInTheMiddle is a client that has finished sending, and goes without reading what is on its way: a write to it then raises SIGPIPE, which
// ends a program that has said nothing about it.
func (t *trial) leavesInTheMiddle(port int) {
	t.do(peer.Python(`c = socket.create_connection(("127.0.0.1", %d), 10); c.shutdown(socket.SHUT_WR); print(len(c.recv(1)), "byte read")`, port),
		"a client of port %d half-closes, reads one byte, and leaves in the middle of the download", port)
	conn := t.startsReading(port).(*net.TCPConn)
	t.must(conn.CloseWrite())
	time.Sleep(200 * time.Millisecond) // for the program to see the half-close, and to fill what is on the way
	t.must(conn.SetLinger(0))
	conn.Close()
	for range 10 { // the program that dies of it does so in the next write
		t.alive()
		time.Sleep(50 * time.Millisecond)
	}
}

// startsReading connects, and waits for the first byte, which it leaves in the socket.
func (t *trial) startsReading(port int) net.Conn {
	var conn net.Conn
	t.soon(startLimit, "a first byte", func() error {
		var err error
		if conn, err = net.DialTimeout("tcp", address(port), patience); err != nil {
			return peer.Plain(err)
		}
		if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
			return err
		}
		if _, err := peer.Peek(conn.(*net.TCPConn)); err != nil {
			conn.Close()
			return peer.Plain(err)
		}
		return nil
	})
	t.atEnd(func() { conn.Close() })
	return conn
}

// readsAll reads a block again and again, n bytes in all, and then the end.
func (t *trial) readsAll(conn net.Conn, block []byte, n int) {
	got, want := sha256.New(), sha256.New()
	for range n / len(block) {
		_, _ = want.Write(block) // never fails
	}
	k, buf, err := 0, make([]byte, 1<<20), error(nil)
	for err == nil {
		t.must(conn.SetReadDeadline(time.Now().Add(3 * patience))) // of each piece: a busy machine may take long for all
		var m int
		m, err = conn.Read(buf)
		_, _ = got.Write(buf[:m])
		k += m
	}
	switch {
	case err != io.EOF || k != n:
		t.fail(fmt.Sprintf("%d bytes", n), "%d bytes, then: %v", k, endOf(err))
	case string(got.Sum(nil)) != string(want.Sum(nil)):
		t.fail("the bytes that the endpoint has sent", "as many other bytes")
	}
}

// judgeDescriptors judges twice. A client takes two descriptors, so with one number the program runs out of them when it accepts a client, and
// with the next when it connects to the endpoint.
func judgeDescriptors(t *trial) {
	red := t.named("red")
	web := t.service("web", red.Addr)
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
	crowdByHand := peer.CrowdByHand(port, clients)
	t.do(crowdByHand, "%d clients of port %d connect and stay; the program may have %d descriptors", clients, port, descriptors)
	// First one after the other, so that those that are being served take all descriptors: of a crowd a program may turn away everybody.
	var held []net.Conn
	for len(held) < clients {
		conn, err := net.DialTimeout("tcp", address(port), 3*time.Second)
		if err != nil {
			break
		}
		held = append(held, conn)
		if _, err := peer.ReadName(conn, 3*time.Second); err != nil {
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
	t.soon(12*time.Second, "a program that waits: its threads together run or want to run less than 70 % of the time", func() error {
		if busy := busy(t.program.PID(), 2*time.Second); busy > 0.7 {
			return fmt.Errorf("threads that run or want to run %.0f %% of the time", 100*busy)
		}
		return nil
	})
	closeAll(held)
	t.changes(crowdByHand, "the %d clients leave; the program may have %d descriptors", clients, descriptors)
	t.answered(port, startLimit, "red")
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		conn.Close()
	}
}

// busy returns the part of a time that the threads of a process were running, or ready to run and waiting for a processor, all together. So a
// loop without a pause is seen on a machine whose processors others use, too, and if it moves from thread to thread, as in Go.
func busy(pid int, window time.Duration) float64 {
	began := time.Now()
	ran, waited := used(pid)
	time.Sleep(window)
	took := time.Since(began)
	ranNow, waitedNow := used(pid)
	return (ranNow + waitedNow - ran - waited).Seconds() / took.Seconds()
}

func judgeDrain(t *trial) {
	red := t.named("red")
	web := t.service("web", red.Addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	t.drains(web.port, t.connects(web.port))
}

// drains ends the program by SIGTERM while a client of a port is being served.
func (t *trial) drains(port int, conn net.Conn) {
	byHand := peer.DrainByHand(port, t.args)
	t.do(byHand, "the program gets SIGTERM")
	t.program.Signal(syscall.SIGTERM)
	t.do(peer.AskByHand(port), "port %d closes", port)
	t.closesPort(port)
	t.echoes(conn, 1000, byHand)
	conn.Close()
	t.do(byHand, "the last client has gone, and the program ends")
	select {
	case <-t.program.Exited():
	case <-time.After(4 * startLimit): // a busy machine needs some of it
		t.fail("an end with exit status 0", "it still runs after %v", 4*startLimit)
	}
	if state := t.program.State(); !state.Success() {
		t.fail("exit status 0", "%v", state)
	}
	t.program.close()
	t.program = nil
}

// closesPort is refused, for a program that may end meanwhile.
func (t *trial) closesPort(port int) {
	for clock := t.startClock(); ; time.Sleep(10 * time.Millisecond) {
		if open, _ := peer.Listens(port); open && clock.passed() < patience {
			continue // a client would wake a thread that waits in accept(2)
		}
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err != nil {
			return
		}
		conn.Close()
		if clock.passed() > patience {
			t.fail("a closed port", "the port is open %v after SIGTERM", patience)
		}
	}
}
