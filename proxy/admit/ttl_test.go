package admit

import (
	"context"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// A lookUpConn is a connection to a nameserver, whose end a test waits for.
type lookUpConn struct {
	*net.UDPConn
	closed chan<- struct{}
}

func (c *lookUpConn) Close() error {
	c.closed <- struct{}{}
	return c.UDPConn.Close()
}

// TestALookUpLeavesNoSocketsBehind, although the nameserver has time left to answer: package net would keep them for five seconds.
func TestALookUpLeavesNoSocketsBehind(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	opened, closed := make(chan struct{}, 10), make(chan struct{}, 10)
	r := nameservers(func(ctx context.Context, _, _ string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, "udp", silent.LocalAddr().String())
		if err != nil {
			return nil, err
		}
		opened <- struct{}{}
		return &lookUpConn{c.(*net.UDPConn), closed}, nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	const families = 2
	go func() {
		for range families {
			<-opened
		}
		cancel()
	}()
	if _, err := r.LookupNetIP(ctx, "ip", "web.hostile.test"); err == nil {
		t.Error("a nameserver that is silent has answered")
	}
	for range families {
		select {
		case <-closed:
		case <-time.After(3 * time.Second):
			t.Fatal("a socket is still open")
		}
	}
}

// TestTheTimeOfANameserverEndsWithTheLookUp, also if package net sets it after that.
func TestTheTimeOfANameserverEndsWithTheLookUp(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	ctx, cancel := context.WithCancel(t.Context())
	c, err := nameservers(new(net.Dialer).DialContext).Dial(ctx, "udp", silent.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer time.AfterFunc(3*time.Second, func() { c.Close() }).Stop()
	cancel()
	for _, when := range []string{"once the look-up has ended", "with a time set after that"} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s, a read ends with: %v; want a deadline that has passed", when, err)
		}
		if err := c.SetDeadline(time.Now().Add(time.Hour)); err != nil {
			t.Error(err)
		}
	}
}

// serveDNS answers questions for addresses of IPv4 with records of some TTLs, and all others with none. It returns where it is asked.
func serveDNS(t *testing.T, ttls ...uint32) (addr string) {
	t.Helper()
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 1500)
		for {
			n, from, err := server.ReadFrom(buf)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if err := m.Unpack(buf[:n]); err != nil {
				continue
			}
			m.Response, m.Additionals = true, nil
			for i, ttl := range ttls {
				if m.Questions[0].Type == dnsmessage.TypeA {
					m.Answers = append(m.Answers, dnsmessage.Resource{
						Header: dnsmessage.ResourceHeader{Name: m.Questions[0].Name, Class: dnsmessage.ClassINET, TTL: ttl},
						Body:   &dnsmessage.AResource{A: [4]byte{10, 0, 0, byte(i)}},
					})
				}
			}
			packed, err := m.Pack()
			if err == nil {
				_, err = server.WriteTo(packed, from)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() {
		server.Close()
		<-ended
	})
	return server.LocalAddr().String()
}

// Package net does not tell TTLs: they are read on their way to it.
func TestTheShortestTTLOfAnAnswerIsKnown(t *testing.T) {
	server := serveDNS(t, 300, 20, 60)
	r := nameservers(func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp", server)
	})
	ttl := new(answerTTL)
	addrs, err := r.LookupNetIP(context.WithValue(t.Context(), ttlKey{}, ttl), "ip", "db.example.test.")
	if err != nil || len(addrs) != 3 || !addrs[0].IsValid() || ttl.shortest() != 20*time.Second {
		t.Errorf("got %v, %v and a TTL of %v; want 20s", addrs, err, ttl.shortest())
	}
}

// What is no answer says nothing.
func TestNoTTLIsReadFromWhatIsNoAnswer(t *testing.T) {
	question := dnsmessage.Message{Questions: []dnsmessage.Question{{Name: dnsmessage.MustNewName("db."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}}}
	question.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("db."), Class: dnsmessage.ClassINET, TTL: 7}, Body: &dnsmessage.AResource{}}}
	packed, err := question.Pack()
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range [][]byte{nil, packed[:11], packed} {
		ttl := new(answerTTL)
		if ttl.read(message); ttl.known {
			t.Errorf("%x has a TTL of %v", message, ttl.ttl)
		}
	}
}
