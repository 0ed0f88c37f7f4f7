package conformancetest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// How connections end: what was cut off looks cut off, and what was said before the end arrives.

func (s suite) TestAResetByTheClientReachesTheEndpointAsAReset(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	accepted, ended := make(chan struct{}, 1), make(chan error, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		accepted <- struct{}{}
		ended <- proxytest.Discard(conn)
	})))
	proxytest.Receive(t, accepted, "the endpoint to accept")
	proxytest.Reset(client)
	if err := proxytest.Receive(t, ended, "the endpoint to see the end"); !proxytest.IsReset(err) {
		t.Errorf("the endpoint saw %v; want a reset", err)
	}
}

func (s suite) TestAResetByTheEndpointReachesTheClientAsAReset(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, afterAByte(proxytest.Reset))))
	client.Write([]byte("?"))
	if err := proxytest.Discard(client); !proxytest.IsReset(err) {
		t.Errorf("the client saw %v; want a reset", err)
	}
}

// afterAByte makes an endpoint do something once it has heard from its client. What resets a
// connection sooner may do so before the other side knows that it has one.
func afterAByte(do func(*net.TCPConn)) func(*net.TCPConn) {
	return func(conn *net.TCPConn) {
		io.ReadFull(conn, make([]byte, 1))
		do(conn)
	}
}

func (s suite) TestAResetByTheClientAfterItFinishedReachesTheEndpointAsAReset(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	finished, ended := make(chan error, 1), make(chan error, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		finished <- proxytest.Discard(conn)
		chunk := make([]byte, 64<<10)
		for { // the other side will not read this to its end
			if _, err := conn.Write(chunk); err != nil {
				ended <- err
				return
			}
		}
	})))
	client.CloseWrite()
	if err := proxytest.Receive(t, finished, "the endpoint to see the half-close"); err != nil {
		t.Fatalf("the endpoint saw %v; want the clean end of one direction", err)
	}
	if _, err := client.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	proxytest.Reset(client)
	if err := proxytest.Receive(t, ended, "the endpoint to see the end"); !proxytest.IsReset(err) {
		t.Errorf("the endpoint saw %v; want a reset", err)
	}
}

// What was sent before a reset arrives before it: a short answer just before is what tells a client
// why.
func (s suite) TestDataBeforeAResetArrivesFirst(t *testing.T) {
	lastWords := bytes.Repeat([]byte("last words "), 100)
	cfg := s.config()
	n := newNode(t, cfg)
	heard, ended := make(chan string, 1), make(chan error, 1)
	down := tcpThrough(t, n, served(t, afterAByte(func(conn *net.TCPConn) {
		conn.Write(lastWords)
		proxytest.Reset(conn)
	})))
	up := proxytest.On(proxytest.FreePort(t))
	n.apply(service("up", tcp(up.Port())), endpoints("up", served(t, func(conn *net.TCPConn) {
		got, err := io.ReadAll(conn)
		heard <- string(got)
		ended <- err
	})))
	for range 50 {
		client := proxytest.Dial(t, down)
		client.Write([]byte("?"))
		if got, err := io.ReadAll(client); string(got) != string(lastWords) || !proxytest.IsReset(err) {
			t.Fatalf("the client got %d bytes of %d, then %v; want a reset", len(got), len(lastWords), err)
		}
		client = proxytest.Dial(t, up)
		client.Write(lastWords)
		proxytest.Reset(client)
		words, err := proxytest.Receive(t, heard, "the endpoint"), proxytest.Receive(t, ended, "the endpoint to see the end")
		if words != string(lastWords) || !proxytest.IsReset(err) {
			t.Fatalf("the endpoint got %d bytes of %d, then %v; want a reset", len(words), len(lastWords), err)
		}
	}
}

// A server that answers before it has read the whole request, and closes, makes its kernel send a
// reset. The proxy learns of it while it is still writing the rest of the request: it must deliver
// the answer all the same.
func (s suite) TestAnAnswerSurvivesAServerThatClosesWithUnreadInput(t *testing.T) {
	answer := bytes.Repeat([]byte("413 too large. "), 500)
	cfg := s.config()
	n := newNode(t, cfg)
	addr := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		io.ReadFull(conn, make([]byte, 10))
		conn.Write(answer)
	}))
	for i := range 50 {
		client := proxytest.Dial(t, addr)
		var sending sync.WaitGroup
		sending.Go(func() { // more than the server will ever read, until it is stopped
			chunk := make([]byte, 8<<10)
			for range 100 {
				if _, err := client.Write(chunk); err != nil {
					return
				}
			}
		})
		got, err := io.ReadAll(client)
		if !bytes.Equal(got, answer) {
			t.Fatalf("client %d got %d bytes of %d, then %v", i, len(got), len(answer), err)
		}
		client.Close()
		sending.Wait()
	}
}

// keepSending writes to a connection until that fails, and then tells how.
func keepSending(conn *net.TCPConn) <-chan error {
	ended := make(chan error, 1)
	go func() {
		chunk := make([]byte, 1<<10)
		for {
			if _, err := conn.Write(chunk); err != nil {
				ended <- err
				return
			}
			time.Sleep(time.Millisecond)
		}
	}()
	return ended
}

// The same for a client that has sent all and finished, and whose endpoint reads slowly before it answers.
func (s suite) TestAnEndpointSlowerThanTheHalfClosedTimeoutGetsAll(t *testing.T) {
	upload := proxytest.Stream{Seed: 7, Size: 256 << 10}
	cfg := s.config()
	cfg.HalfClosedTimeout = time.Second
	n := newNode(t, cfg)
	type end struct {
		got  int
		err  error
		took time.Duration
	}
	type try struct {
		beat     func()
		received chan end
	}
	var current atomic.Pointer[try]
	addr := tcpThrough(t, n, proxytest.ServeNarrow(t, "127.0.0.1:0", 8<<10, func(conn *net.TCPConn) {
		of, start := current.Load(), time.Now()
		for got, buf := 0, make([]byte, 4<<10); ; time.Sleep(40 * time.Millisecond) {
			of.beat()
			m, err := conn.Read(buf)
			if got += m; err != nil {
				of.received <- end{got, err, time.Since(start)}
				io.WriteString(conn, "got it")
				return
			}
		}
	}).Addr)
	proxytest.Punctually(t, cfg.HalfClosedTimeout/2, func(beat func()) error {
		received := make(chan end, 1)
		current.Store(&try{beat, received})
		client := proxytest.Dial(t, addr)
		if err := errors.Join(upload.SendTo(client), client.CloseWrite()); err != nil {
			return err
		}
		e := proxytest.Receive(t, received, "the endpoint to read all")
		if e.got != upload.Size || e.err != io.EOF || e.took < 2*cfg.HalfClosedTimeout {
			return fmt.Errorf("the endpoint got %d bytes of %d in %v, and then %v", e.got, upload.Size, e.took, e.err)
		}
		if answer, err := io.ReadAll(client); string(answer) != "got it" || err != nil {
			return fmt.Errorf("the client got %q, %v; want the answer", answer, err)
		}
		return nil
	})
}

// slowly reads to the end, and returns how much there was and how it ended: nil for a clean end.
func slowly(conn *net.TCPConn) (got int, err error) {
	for buf := make([]byte, 16<<10); ; time.Sleep(2 * time.Millisecond) {
		n, err := conn.Read(buf)
		got += n
		if err == io.EOF {
			return got, nil
		} else if err != nil {
			return got, err
		}
	}
}

// A client that has what it wanted may close without reading the rest: that is its right, and the
// server hears of it.
func (s suite) TestAClientThatLeavesEarlyStopsTheServer(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	ended := make(chan error, 1)
	client := proxytest.Dial(t, tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		chunk := make([]byte, 64<<10)
		for {
			if _, err := conn.Write(chunk); err != nil {
				ended <- err
				return
			}
		}
	})))
	if _, err := io.ReadFull(client, make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if err := proxytest.Receive(t, ended, "the server to be stopped"); !proxytest.IsReset(err) {
		t.Errorf("the server saw %v; want a reset", err)
	}
}
