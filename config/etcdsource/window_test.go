package etcdsource

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"kubeproxy/config/etcdconfig"
)

// TestAWindowHoldsTheLargestValueAndLittleMore: with less, etcd waits for us within each large value. More only fills with what a node that is stopped is
// sent.
func TestAWindowHoldsTheLargestValueAndLittleMore(t *testing.T) {
	etcd, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	c, err := (&dialer{quick("http://" + etcd.Addr().String()), etcdconfig.NewNames(nil)}).dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	c.conn.ActiveConnection().Connect()
	conn, err := etcd.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		t.Fatal(err)
	}
	const initial = 64<<10 - 1 // RFC 9113, section 6.9.2
	stream, connection := uint32(initial), uint32(initial)
	for frames := http2.NewFramer(io.Discard, conn); connection == initial; { // gRPC widens it next
		frame, err := frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if n, ok := frame.Value(http2.SettingInitialWindowSize); ok {
				stream = n
			}
		case *http2.WindowUpdateFrame:
			connection += frame.Increment
		}
	}
	const least, most = 3 << 19, 2 << 20 // etcd's default limit, and some more
	if stream < least || stream > most || connection < least || connection > most {
		t.Errorf("the window of a stream is %d, that of the connection %d; want from %d to %d", stream, connection, least, most)
	}
}
