package conformancetest

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/proxytest"
)

// sayUrgently sends b, of which the last byte is urgent (MSG_OOB), as telnet and FTP do.
func sayUrgently(t testing.TB, conn *net.TCPConn, b []byte) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err == nil {
		var sendErr error
		err = raw.Write(func(fd uintptr) bool {
			sendErr = unix.Sendto(int(fd), b, unix.MSG_OOB|unix.MSG_NOSIGNAL, nil)
			return sendErr != unix.EAGAIN
		})
		if err == nil {
			err = sendErr
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A read ends before urgent data, so a short one does not mean that there is no more. And an urgent byte has a place in what was said.
func (s suite) TestUrgentDataArrivesInItsPlaceAndHoldsUpNothing(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	backends := make(chan *net.TCPConn, 1)
	done := make(chan struct{})
	defer close(done)
	at := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		backends <- conn
		<-done
	}))
	client := proxytest.Dial(t, at)
	if _, err := client.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	backend := proxytest.Receive(t, backends, "the endpoint's connection")
	hears(t, backend, "hello")
	for range 100 {
		for _, way := range []struct{ from, to *net.TCPConn }{{client, backend}, {backend, client}} {
			way.from.Write([]byte("a"))
			sayUrgently(t, way.from, []byte("b"))
			way.from.Write([]byte("c"))
			hears(t, way.to, "abc")
		}
	}
}

// The same in the midst of much, which takes another way through the epoll engine.
func (s suite) TestUrgentDataInBulkArrivesInItsPlace(t *testing.T) {
	cfg := s.config()
	n := newNode(t, cfg)
	got := make(chan []byte, 1)
	at := tcpThrough(t, n, served(t, func(conn *net.TCPConn) {
		all, _ := io.ReadAll(conn)
		got <- all
	}))
	client := proxytest.Dial(t, at)
	var want []byte
	for i := range 32 {
		part := bytes.Repeat([]byte{byte(i)}, 256<<10)
		if _, err := client.Write(part); err != nil {
			t.Fatal(err)
		}
		sayUrgently(t, client, []byte{255})
		want = append(append(want, part...), 255)
	}
	client.CloseWrite()
	if all := proxytest.Receive(t, got, "all of it"); !bytes.Equal(all, want) {
		t.Errorf("the endpoint got %d bytes of %d, or others", len(all), len(want))
	}
}

// TestUrgentDataAtTheEndOfBulkArrives: nothing comes after it that would have the proxy look again, and what is before it came while the endpoint read nothing.
func (s suite) TestUrgentDataAtTheEndOfBulkArrives(t *testing.T) {
	const bulk = 8 << 20
	for _, more := range []int{512 << 10, 1 << 20, 2 << 20, 3 << 20} {
		sent := make(chan struct{})
		at := tcpThrough(t, newNode(t, s.config()), served(t, func(conn *net.TCPConn) {
			conn.SetReadBuffer(64 << 10)
			io.CopyN(io.Discard, conn, bulk)
			<-sent
			io.CopyN(io.Discard, conn, int64(more+1))
			conn.Write([]byte("all"))
		}))
		release := sync.OnceFunc(func() { close(sent) })
		t.Cleanup(release)
		client := proxytest.Dial(t, at)
		client.SetWriteBuffer(4 << 20)
		client.SetWriteDeadline(time.Now().Add(proxytest.Patience))
		if _, err := client.Write(make([]byte, bulk+more)); err != nil {
			t.Fatal(err)
		}
		sayUrgently(t, client, []byte{255})
		release()
		hears(t, client, "all")
	}
}

// hears reads as much as is wanted.
func hears(t testing.TB, conn *net.TCPConn, want string) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if n, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		t.Fatalf("heard %q (%v); want %q", got[:n], err, want)
	}
}
