package store

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"kubeproxy/internal/process"
)

// get asks an etcd 2 for a key, as a program does.
func get(t *testing.T, e *etcd2, key string) (answer string, err error) {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(e.url(key))
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

func TestAnEtcd2HasItsRecordsUntilTheyAreWiped(t *testing.T) {
	s, err := New(InEtcd2, nil, 20000, 32000)
	if err != nil {
		t.Fatal(err)
	}
	e := s.(*etcd2)
	t.Cleanup(e.Close)
	has := func(want string) {
		t.Helper()
		if got, err := get(t, e, "specs/web"); err != nil || !strings.Contains(got, want) {
			t.Errorf("it answers %q, %v; want %q", got, err, want)
		}
	}
	if err := e.Put("specs/web", "one"); err != nil {
		t.Fatal(err)
	}
	has(`"value":"one"`)
	e.Kill()
	if got, err := get(t, e, "specs/web"); err == nil {
		t.Errorf("it was killed, and answers %q", got)
	}
	if err := e.Start(); err != nil {
		t.Fatal(err)
	}
	has(`"value":"one"`)
	e.Pause()
	conn, err := net.Dial("tcp", e.Address())
	if err != nil {
		t.Fatalf("it is paused, and connections end: %v", err)
	}
	defer conn.Close()
	answered := make(chan error, 1)
	go func() {
		_, err := get(t, e, "specs/web")
		answered <- err
	}()
	if err := e.Put("specs/web", "two"); err != nil { // the school writes while nobody is answered
		t.Fatal(err)
	}
	e.Resume()
	if err := <-answered; err != nil {
		t.Errorf("who asked in the pause: %v", err)
	}
	has(`"value":"two"`)
	if err := e.Delete("specs/web"); err != nil {
		t.Fatal(err)
	}
	has("Key not found")
	if err := e.Put("specs/web", "three"); err != nil {
		t.Fatal(err)
	}
	if err := e.Wipe(); err != nil {
		t.Fatal(err)
	}
	has("Key not found")
}

func TestConnectionsThroughAGatewayThatAreDeafStayOpenAndNewOnesWork(t *testing.T) {
	s, err := New(InEtcd2, nil, 20000, 32000)
	if err != nil {
		t.Fatal(err)
	}
	e := s.(*etcd2)
	t.Cleanup(e.Close)
	port, err := process.FreePorts(20000, 32000, 1)
	if err != nil {
		t.Fatal(err)
	}
	interrupts := 0
	g, err := NewGateway(e, (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: int(port)}).String(), 1, func() error { interrupts++; return nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	ask := func(conn net.Conn) error {
		if _, err := io.WriteString(conn, "GET /version HTTP/1.1\r\nHost: etcd\r\n\r\n"); err != nil {
			return err
		}
		_, err := conn.Read(make([]byte, 1))
		return err
	}
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(e.Flags()[0], "-etcd_servers=http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	old := dial()
	if err := ask(old); err != nil {
		t.Fatal(err)
	}
	if n := g.Deafen(); n != 1 {
		t.Errorf("%d connections are deaf; want one", n)
	}
	if err := ask(dial()); err != nil {
		t.Errorf("a new connection: %v", err)
	}
	go func() { _ = ask(old) }()
	e.Kill() // what the server does to its connections does not reach the program
	if err := old.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(old) // of the first answer
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() || strings.Count("H"+string(rest), "HTTP/1.1 200") > 1 {
		t.Errorf("the deaf connection has %q, then %v; want it open and silent", rest, err)
	}
	if n, err := g.Interrupts(1); n != 1 || err != nil || interrupts != 1 {
		t.Errorf("it was interrupted %d times, %d by its own count, %v; want once", interrupts, n, err)
	}
}
