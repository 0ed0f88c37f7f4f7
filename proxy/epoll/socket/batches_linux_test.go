package socket

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/engine"
	"kubeproxy/registry"
)

// A delivery notes what was told of replies.
type delivery struct{ told []string }

func (d *delivery) Delivered(length int, err error) {
	d.told = append(d.told, fmt.Sprint(length, " ", err))
}

// What a batch receives has its sender, and what is added to a batch arrives there, in order.
func TestBatchesCarryDatagramsThereAndBack(t *testing.T) {
	fd, err := ListenUDP(new(engine.Base), registry.ListenerID{Addr: netip.MustParseAddr("127.0.0.1"), Protocol: registry.UDP})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	client, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(LocalName(fd)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, question := range []string{"a", "bc", ""} {
		if _, err := client.Write([]byte(question)); err != nil {
			t.Fatal(err)
		}
	}
	in, out, d := NewReceiveBatch(), new(SendBatch), new(delivery)
	var questions []string
	for len(questions) < 3 { // over loopback they are there by now
		n, errno := in.Receive(fd, DatagramBatch)
		if errno != 0 {
			t.Fatal(errno)
		}
		for i := range n {
			from, _, datagram := in.Datagram(i)
			if want := client.LocalAddr().String(); from.String() != want {
				t.Errorf("it came from %v; want %v", from, want)
			}
			questions = append(questions, string(datagram))
			out.Add(d, fd, from, nil, copy(out.Room()[:], "re "+string(datagram)))
		}
	}
	if want := []string{"a", "bc", ""}; !slices.Equal(questions, want) {
		t.Errorf("received %q; want %q", questions, want)
	}
	if !out.Owes(d) || out.Owes(new(delivery)) {
		t.Error("the batch does not know whose replies it has")
	}
	out.Send()
	if want := []string{"4 <nil>", "5 <nil>", "3 <nil>"}; !slices.Equal(d.told, want) || out.Owes(d) {
		t.Errorf("told %q; want %q", d.told, want)
	}
	for _, want := range []string{"re a", "re bc", "re "} {
		answer := make([]byte, 10)
		if n, err := client.Read(answer); err != nil || string(answer[:n]) != want {
			t.Errorf("the client got %q, %v; want %q", answer[:n], err, want)
		}
	}
}

// A reply that cannot be sent costs itself, and not the ones after it.
func TestAReplyThatCannotBeSentCostsOnlyItself(t *testing.T) {
	fd, err := ListenUDP(new(engine.Base), registry.ListenerID{Addr: netip.MustParseAddr("127.0.0.1"), Protocol: registry.UDP})
	if err != nil {
		t.Fatal(err)
	}
	defer Close(fd)
	out, d := new(SendBatch), new(delivery)
	out.Room()
	out.Add(d, fd, netip.MustParseAddrPort("[::1]:9"), nil, 1) // of another family than the socket
	out.Room()
	out.Add(d, fd, LocalName(fd), nil, 2)
	out.Send()
	if want := []string{fmt.Sprint("1 ", error(unix.EAFNOSUPPORT)), "2 <nil>"}; !slices.Equal(d.told, want) {
		t.Errorf("told %q; want %q", d.told, want)
	}
}
