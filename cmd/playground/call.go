package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// answerTimeout bounds how long one call may take.
const answerTimeout = 5 * time.Second

// call calls addr n times, each time as a new client, and writes the answers.
func call(ctx context.Context, out io.Writer, kind, addr string, n int) error {
	ask := map[string]func(context.Context, string) (string, error){"http": callHTTP, "tcp": callTCP, "udp": callUDP}[kind]
	if ask == nil {
		misused(fmt.Sprintf("call: %q is none of http, tcp and udp", kind))
	}
	for range n {
		ctx, cancel := context.WithTimeout(ctx, answerTimeout)
		answer, err := ask(ctx, addr)
		cancel()
		if err != nil {
			return fmt.Errorf("call %s %s: %w", kind, addr, err)
		}
		fmt.Fprintln(out, strings.TrimSuffix(answer, "\n"))
	}
	return nil
}

// callHTTP asks for "/" on a connection of its own: the proxy chooses once for each connection, and
// one that is kept alive would go on talking to the same backend.
func callHTTP(ctx context.Context, addr string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/", nil)
	if err != nil {
		return "", err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy from the environment
	response, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

// callTCP says hello, and that this is all, and reads until the other side has finished too.
func callTCP(ctx context.Context, addr string) (string, error) {
	conn, err := dial(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return "", err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	if err == nil && len(answer) == 0 {
		err = errors.New("closed without an answer")
	}
	return string(answer), err
}

// callUDP sends a datagram, and again each second until one comes back: either may get lost.
func callUDP(ctx context.Context, addr string) (string, error) {
	conn, err := dial(ctx, "udp", addr)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	buf := make([]byte, 64<<10)
	for {
		if _, err := io.WriteString(conn, "hello"); err != nil {
			return "", err
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		n, err := conn.Read(buf)
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		return string(buf[:n]), err
	}
}

// dial opens a connection whose deadline is that of ctx.
func dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}
