// Package peer has what stands on both sides of a program that the school judges: clients, and endpoints that say who they are.
package peer

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"time"
)

// Ask is one client: it connects, reads the name of the endpoint, and leaves.
func Ask(address string, patience time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "", Plain(err)
	}
	defer conn.Close()
	return ReadName(conn, patience)
}

// ReadName reads the line that an endpoint says first.
func ReadName(conn net.Conn, patience time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := conn.Read(one); err != nil {
			return "", Plain(err)
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		if line = append(line, one[0]); len(line) > 100 {
			return "", fmt.Errorf("a line that begins %q, which no endpoint has sent", line)
		}
	}
}

// Finish is a client that sends something, half-closes, and reads to the end.
func Finish(address string, sends []byte, patience time.Duration) (answer []byte, err error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, Plain(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	if _, err := conn.Write(sends); err != nil {
		return nil, Plain(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, Plain(err)
	}
	if answer, err = io.ReadAll(conn); err != nil {
		err = Plain(err)
	}
	return answer, err
}

// What a client sees, in words.
var (
	ErrRefused = errors.New("connection refused")
	ErrReset   = errors.New("connection reset")
	ErrClosed  = errors.New("connection closed without an answer")
	ErrSilence = errors.New("no answer")
)

// Plain returns one of these errors, or an error as it is.
func Plain(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return ErrRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return ErrReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return ErrClosed
	case errors.As(err, &timeout) && timeout.Timeout():
		return ErrSilence
	}
	return err
}

// Datagram sends one over a connected UDP socket until it is answered, and returns the name of the endpoint. Each attempt has a number, so
// that a late answer is not taken for the next one's.
func Datagram(conn net.Conn, text string) (string, error) {
	buf, last := make([]byte, 65536), ErrSilence
	for attempt := range 10 {
		sent := fmt.Sprintf("%s %d %d", text, attempt, time.Now().UnixNano())
		if _, err := conn.Write([]byte(sent)); err != nil {
			last = Plain(err) // an earlier one was refused: by ICMP
			continue
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		for {
			n, err := conn.Read(buf)
			if err != nil {
				last = Plain(err)
				break
			}
			if name, rest, _ := strings.Cut(string(buf[:n]), ":"); rest == sent {
				return name, nil
			}
		}
		if errors.Is(last, ErrRefused) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return "", last
}

// AnsweredFrom sends a datagram, and returns nil if it is answered from the address that it was sent to.
func AnsweredFrom(conn *net.UDPConn, to *net.UDPAddr) error {
	sent := fmt.Sprint("hello ", time.Now().UnixNano())
	if _, err := conn.WriteToUDP([]byte(sent), to); err != nil {
		return Plain(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	for buf := make([]byte, 999); ; {
		n, from, err := conn.ReadFromUDP(buf)
		if err != nil {
			return Plain(err)
		}
		if _, answered, _ := strings.Cut(string(buf[:n]), ":"); answered != sent {
			continue // an earlier one
		}
		if !from.IP.Equal(to.IP) || from.Port != to.Port {
			return fmt.Errorf("an answer from %s", from)
		}
		return nil
	}
}

// Peek waits until a byte has come, and leaves it there.
func Peek(conn *net.TCPConn) (n int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, err
	}
	failed := raw.Read(func(fd uintptr) bool {
		n, _, err = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK)
		return !errors.Is(err, syscall.EAGAIN)
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == nil && n == 0:
		return 0, io.EOF
	}
	return n, err
}

// Listens reports whether somebody listens on a port of TCP, where the system tells (Linux), without a client.
func Listens(port int) (open, known bool) {
	suffix, listen := fmt.Sprintf(":%04X", port), "0A"
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(name)
		known = known || err == nil
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 3 && strings.HasSuffix(f[1], suffix) && f[3] == listen {
				return true, true
			}
		}
	}
	return false, known
}
