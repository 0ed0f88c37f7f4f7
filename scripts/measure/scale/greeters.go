//go:build linux

package scale

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"time"

	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// Greeters are backends of which each tells a client at once who it is, and when the client came. They listen
// on every address, so there are as many endpoints as one likes, and no more than two sockets.

// A greeting is what a greeter says.
type greeting struct {
	by int
	at time.Duration // since the machine has started
}

// runGreeters opens two greeters, at a port and at the next, says so, and serves until standard input
// ends.
func runGreeters(base string) (err error) {
	defer try.Catch(&err)
	port := try.Get(strconv.ParseUint(base, 10, 16))
	try.Get(measure.RaiseDescriptorLimit())
	for by := range 2 {
		l := try.Get(net.Listen("tcp4", fmt.Sprintf("0.0.0.0:%d", int(port)+by)))
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					fmt.Println("accept:", err)
					time.Sleep(10 * time.Millisecond)
					continue
				}
				at := measure.SinceBoot()
				go greet(conn, greeting{by, at})
			}
		}()
	}
	fmt.Println("ready")
	_, _ = os.Stdin.Read(make([]byte, 1)) // it returns when standard input ends
	return nil
}

// greet leaves it to the client to close: so no port is kept waiting.
func greet(conn net.Conn, g greeting) {
	defer conn.Close()
	if _, err := conn.Write(binary.LittleEndian.AppendUint64([]byte{byte(g.by)}, uint64(g.at))); err == nil {
		_, _ = conn.Read(make([]byte, 1)) // it ends as the client does
	}
}

// askTimeout bounds one question.
const askTimeout = 5 * time.Second

// ask connects to a service, and gives what its backend says.
func ask(to netip.AddrPort) (_ greeting, err error) {
	defer try.Catch(&err)
	conn := try.Get(net.DialTimeout("tcp4", to.String(), askTimeout))
	defer conn.Close()
	// A reset leaves no port waiting, neither here nor at the proxy.
	try.Do(errors.Join(conn.SetDeadline(time.Now().Add(askTimeout)), conn.(*net.TCPConn).SetLinger(0)))
	var buf [9]byte
	if _, err := io.ReadFull(conn, buf[:]); err != nil {
		return greeting{}, fmt.Errorf("from %v: %w", to, err)
	}
	return greeting{int(buf[0]), time.Duration(binary.LittleEndian.Uint64(buf[1:]))}, nil
}
