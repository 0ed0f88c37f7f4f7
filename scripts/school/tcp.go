package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"kubeproxy/scripts/school/peer"
)

// pace is the pause of clients that go on until they are stopped: they shall use little of the machine.
const pace = 5 * time.Millisecond

// The judges of connections and their endpoints: stages 1 to 4, 7 and 8.

func judgePort(t *trial) {
	red := t.named("red")
	t.start(0)
	web := t.service("web", red.Addr)
	t.answered(web.port, startLimit, "red")
	t.echoes(t.connects(web.port), 1<<20, peer.TalkByHand(web.port))
	green := t.named("green")
	late := t.service("late", green.Addr)
	t.answered(late.port, changeLimit, "green")
}

func judgeCrowd(t *trial) {
	red := t.named("red")
	web := t.service("web", red.Addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	t.do(peer.CrowdByHand(web.port, 50), "50 clients connect and say nothing")
	for range 50 {
		conn, err := net.DialTimeout("tcp", address(web.port), patience)
		if err != nil {
			t.fail("a connection", "%v", peer.Plain(err))
		}
		t.atEnd(func() { conn.Close() })
	}
	go neverStop(t.connects(web.port))
	for range 20 {
		t.asks(web.port, "red")
	}
}

// neverStop sends and receives until the connection is closed.
func neverStop(conn net.Conn) {
	buf := make([]byte, 4096)
	for {
		if _, err := conn.Write(buf); err != nil {
			return
		}
		if _, err := io.ReadFull(conn, buf); err != nil {
			return
		}
		time.Sleep(pace)
	}
}

func judgeTurns(t *trial) {
	red, green, blue := t.named("red"), t.named("green"), t.named("blue")
	names := []string{"red", "green", "blue"}
	web := t.service("web", red.Addr, green.Addr, blue.Addr, red.Addr)
	t.start(0)
	t.answered(web.port, startLimit, names...)
	var given []string
	for range 12 {
		given = append(given, t.asks(web.port, names...))
		i := len(given) - 1
		if i >= 3 && given[i] != given[i-3] || slices.Contains(given[max(0, i-2):i], given[i]) {
			t.fail("three endpoints in turn, always in the same order", "%v", given)
		}
	}
}

func judgeHalfClose(t *trial) {
	const asked, more = 300_000, 100_000
	reader := t.endpoint("red", peer.Read("red"))
	var got atomic.Int64
	early := t.endpoint("early", peer.Early("early", &got))
	web, upload := t.service("web", reader.Addr), t.service("upload", early.Addr)
	t.start(0)
	t.opened(web.port)
	t.answered(upload.port, startLimit, "early")

	t.do(peer.FinishByHand(web.port, asked), "a client of port %d sends %d bytes, half-closes, and reads to the end", web.port, asked)
	t.soon(changeLimit, "an answer and its end", func() error { // the port may be open before the endpoints are known
		answer, err := peer.Finish(address(web.port), make([]byte, asked), patience)
		want := fmt.Sprintf("red has read %d bytes to the end\n", asked)
		if err == nil && len(answer) == 0 {
			err = peer.ErrClosed
		}
		if err == nil && string(answer) != want {
			t.fail("the answer "+fmt.Sprintf("%q", want), "%q", answer)
		}
		if errors.Is(err, peer.ErrSilence) {
			t.fail("an answer and its end", "%v: the endpoint was not told that the client has finished", err)
		}
		return err
	})

	t.do(peer.GoOnByHand(upload.port), "a client of port %d reads to the end, goes on sending, and finishes", upload.port)
	conn, err := net.DialTimeout("tcp", address(upload.port), patience)
	if err != nil {
		t.fail("a connection", "%v", peer.Plain(err))
	}
	t.atEnd(func() { conn.Close() })
	t.must(conn.SetDeadline(time.Now().Add(2 * patience)))
	if answer, err := io.ReadAll(conn); err != nil || string(answer) != "early\n" {
		t.fail(`the answer "early\n" and its end`, "%q, then: %v", answer, endOf(err))
	}
	for range 10 {
		if _, err := conn.Write(make([]byte, more/10)); err != nil {
			t.fail("the client to go on sending", "%v", peer.Plain(err))
		}
		time.Sleep(pace)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.fail("the client to finish", "%v", peer.Plain(err))
	}
	t.soon(patience, fmt.Sprintf("all %d bytes at the endpoint, and their end", more), func() error {
		if n := got.Load(); n != more {
			return fmt.Errorf("the endpoint has read %d bytes to their end", n)
		}
		return nil
	})
}

// endOf says how a stream has ended: by its end, or by an error.
func endOf(err error) error {
	if err == nil || err == io.EOF {
		return errors.New("the end")
	}
	return peer.Plain(err)
}

func judgeRefusing(t *trial) {
	red, green := t.named("red"), t.named("green")
	web := t.service("web", red.Addr, t.refusing(), green.Addr)
	t.start(0)
	t.answered(web.port, startLimit, "red", "green")
	given := make(map[string]int)
	for range 30 {
		given[t.asks(web.port, "red", "green")]++
	}
	if len(given) != 2 {
		t.fail("clients at both endpoints that work", "%v", given)
	}
	red.Close()
	green.Close()
	t.say("now all endpoints refuse")
	t.turnedAway(web.port, patience)
}

func judgeSilent(t *trial) {
	red, green, blue := t.named("red"), t.named("green"), t.named("blue")
	web := t.service("web", red.Addr, t.silentAddress(), blue.Addr)
	other := t.service("other", green.Addr)
	t.start(0)
	t.answered(other.port, startLimit, "green")
	t.do(peer.AskByHand(web.port), "12 clients of port %d, one of whose endpoints is silent, ask at once", web.port)
	answers := make(chan error, 12)
	for range 12 {
		go func() {
			name, err := ask(web.port, patience)
			if err == nil && name != "red" && name != "blue" {
				err = fmt.Errorf("an answer by %s", name)
			}
			answers <- err
		}()
	}
	for range 10 {
		t.asks(other.port, "green")
	}
	t.do(peer.AskByHand(web.port), "the 12 clients of port %d wait for their answers", web.port)
	var failures []error
	for range 12 {
		if err := <-answers; err != nil {
			failures = append(failures, err)
		}
	}
	if len(failures) > 0 {
		t.fail("an answer by red or blue for each of the 12 clients", "%d of them not answered within %v: %v", len(failures), patience, failures[0])
	}
}
