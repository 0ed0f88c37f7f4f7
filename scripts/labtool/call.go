package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"kubeproxy/proxy/proxyproto"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/try"
)

// runCall calls each address, and prints the answers.
func runCall(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	n := flags.Int("n", 1, "")
	sum := flags.Bool("sum", false, "")
	timed := flags.Bool("time", false, "")
	pause := flags.Duration("pause", 0, "")
	timeout := flags.Duration("timeout", 5*time.Second, "")
	var who caller
	flags.TextVar(&who.bind, "bind", netip.Addr{}, "")
	flags.UintVar(&who.port, "from", 0, "")
	flags.TextVar(&who.claim, "claim", netip.Addr{}, "")
	if err := flags.Parse(args); err != nil || flags.NArg() < 2 {
		return errUsage
	}
	var call func(ctx context.Context, addr string) (string, error)
	switch flags.Arg(0) {
	case "http":
		call = who.http
	case "udp":
		call = who.udp
	default:
		return errUsage
	}

	counts := make(map[string]int)
	var failed error
	for i := range *n {
		for _, addr := range flags.Args()[1:] {
			if i > 0 {
				time.Sleep(*pause)
			}
			start := time.Now()
			one, cancel := context.WithTimeout(ctx, *timeout)
			answer, err := call(one, addr)
			cancel()
			if err != nil {
				failed = errUnanswered
				answer = inWords(err, *timeout)
			}
			if *timed {
				answer += fmt.Sprintf(" after %.1fs", time.Since(start).Seconds())
			}
			counts[answer]++
			if !*sum {
				fmt.Println(answer)
			}
		}
	}
	if *sum {
		for _, answer := range slices.Sorted(maps.Keys(counts)) {
			fmt.Printf("%s: %d\n", answer, counts[answer])
		}
	}
	return failed
}

// A caller is who calls. Its zero value calls from any address and port.
type caller struct {
	bind  netip.Addr // from this address
	port  uint       // from this port, by UDP
	claim netip.Addr // whom it pretends to be, by HTTP; not valid: it says nothing of the kind
}

// http asks for "/" on a connection of its own: the proxy chooses once for each connection. It
// speaks plainly, because net/http's client has words of its own for a connection that is cut.
func (c caller) http(ctx context.Context, addr string) (_ string, err error) {
	defer try.Catch(&err)
	dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(c.bind, 0))}
	conn := try.Get(dialer.DialContext(ctx, "tcp", addr))
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	try.Do(conn.SetDeadline(deadline))
	var request []byte
	if c.claim.IsValid() {
		request = proxyproto.Append(nil, registry.ProxyV1, netip.AddrPortFrom(c.claim, 1), netip.AddrPort{})
	}
	try.Get(conn.Write(append(request, "GET / HTTP/1.0\r\n\r\n"...)))
	response := try.Get(http.ReadResponse(bufio.NewReader(conn), nil))
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return strings.TrimSpace(string(body)), err
}

// udp sends one datagram, and waits for one.
func (c caller) udp(ctx context.Context, addr string) (_ string, err error) {
	defer try.Catch(&err)
	dialer := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(c.bind, uint16(c.port)))}
	conn := try.Get(dialer.DialContext(ctx, "udp4", addr))
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	try.Do(conn.SetDeadline(deadline))
	try.Get(conn.Write([]byte("who is there?")))
	buf := make([]byte, 64<<10)
	n, err := conn.Read(buf)
	return string(buf[:n]), err
}

// runAsk says something, and that this is all, and prints what comes back until the other side has
// finished too.
func runAsk(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("ask", flag.ContinueOnError)
	hold := flags.Bool("hold", false, "")
	timeout := flags.Duration("timeout", 10*time.Second, "")
	if err := flags.Parse(args); err != nil || flags.NArg() != 2 {
		return errUsage
	}
	ctx, cancel := context.WithTimeout(ctx, *timeout)
	defer cancel()
	start := time.Now()
	answer, err := ask(ctx, flags.Arg(0), flags.Arg(1), *hold)
	switch {
	case err != nil:
		answer, err = inWords(err, *timeout), errUnanswered
	case answer == "":
		answer, err = "closed without an answer", errUnanswered
	}
	if err != nil && !strings.HasPrefix(answer, noAnswer) { // which says itself how long it took
		answer += fmt.Sprintf(" after %.1fs", time.Since(start).Seconds())
	}
	fmt.Println(answer)
	return err
}

func ask(ctx context.Context, addr, text string, hold bool) (_ string, err error) {
	defer try.Catch(&err)
	conn := try.Get(new(net.Dialer).DialContext(ctx, "tcp", addr))
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	try.Do(conn.SetDeadline(deadline))
	try.Get(io.WriteString(conn, text))
	if !hold {
		try.Do(conn.(*net.TCPConn).CloseWrite())
	}
	answer, err := io.ReadAll(conn)
	return strings.TrimSpace(string(answer)), err
}

const noAnswer = "no answer"

// inWords says how a call failed that was not answered.
func inWords(err error, timeout time.Duration) string {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE): // EPIPE: it came while we wrote
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "closed without an answer"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("%s in %v", noAnswer, timeout)
	}
	return err.Error()
}
