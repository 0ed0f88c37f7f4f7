package enginetest

import (
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
)

func (u suite) TestAfterDisownNothingComesFromTheOldService(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	var sequence atomic.Int64
	stop, streaming := make(chan struct{}), sync.WaitGroup{}
	t.Cleanup(streaming.Wait)
	t.Cleanup(sync.OnceFunc(func() { close(stop) }))
	stream, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(proxytest.On(0)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	s := e.Serve(t, proxytest.At(stream.LocalAddr().(*net.UDPAddr).AddrPort()))
	s.SetOf("heir", Identity(t, "heir"))
	streaming.Go(func() { // an endpoint that does not stop talking
		buf := make([]byte, 100)
		_, session, err := stream.ReadFromUDPAddrPort(buf)
		for err == nil {
			select {
			case <-stop:
				return
			default:
			}
			stream.WriteToUDPAddrPort(strconv.AppendInt(nil, sequence.Add(1), 10), session) // refused in the end
		}
	})
	client := proxytest.DialUDP(t, s.Addr)
	client.Write([]byte("begin"))
	heard := make(chan int64, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf, most, signal := make([]byte, 100), int64(0), heard
		for {
			n, err := client.Read(buf)
			if err != nil {
				heard <- most
				return
			}
			if most, _ = strconv.ParseInt(string(buf[:n]), 10, 64); signal != nil {
				signal <- most
				signal = nil
			}
		}
	}()
	proxytest.Receive(t, heard, "the stream to begin")

	s.Ownership.Store(s.Claim("heir"))
	s.OwnerChanged()
	last := sequence.Load() + 1 // numbered, and sent at any time from now on
	if got := s.SessionCount(); got != 0 {
		t.Errorf("%d sessions are left", got)
	}
	before := sequence.Load()
	proxytest.Eventually(t, func() bool { return sequence.Load() > before+1000 }, "a thousand more of the stream")
	client.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	<-done
	if got := <-heard; got > last {
		t.Errorf("number %d of the stream arrived; %d was sent last before ownerChanged returned", got, last)
	}
	if got := client.Ask(t).Name; got != "heir" {
		t.Errorf("answered by %s", got)
	}
}

// A client that speaks while its port changes hands is served by one owner or the other, and by the
// new one from when ownerChanged has returned.
func (u suite) TestAClientThatSpeaksWhileItsPortChangesHandsFollows(t *testing.T) {
	e := u.newUDP(t, engine.Config{})
	s := e.Serve(t, Identity(t, "dns"))
	s.SetOf("heir", Identity(t, "heir"))
	owners := []*engine.Claim{s.Ownership.Load(), s.Claim("heir")}
	stop, speaking := make(chan struct{}), sync.WaitGroup{}
	for range 4 {
		client := proxytest.DialUDP(t, s.Addr)
		speaking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					client.Try(time.Millisecond)
				}
			}
		})
	}
	client := proxytest.DialUDP(t, s.Addr)
	for i := range 200 {
		next := owners[(i+1)%2]
		s.Ownership.Store(next)
		s.OwnerChanged()
		if got := client.Ask(t).Name; got != next.Key.Name.Name {
			t.Errorf("round %d: answered by %s; want %s", i, got, next.Key)
		}
	}
	close(stop)
	speaking.Wait()
}
