package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"
)

// ask is one client: it connects, reads the name of the endpoint, and leaves.
func ask(port int, patience time.Duration) (string, error) {
	conn, err := net.DialTimeout("tcp", address(port), patience)
	if err != nil {
		return "", plain(err)
	}
	defer conn.Close()
	return readName(conn, patience)
}

// readName reads the line that an endpoint says first.
func readName(conn net.Conn, patience time.Duration) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := conn.Read(one); err != nil {
			return "", plain(err)
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		if line = append(line, one[0]); len(line) > 100 {
			return "", fmt.Errorf("a line that begins %q, which no endpoint has sent", line)
		}
	}
}

// What a client sees, in words.
var (
	errRefused = errors.New("connection refused")
	errReset   = errors.New("connection reset")
	errClosed  = errors.New("connection closed without an answer")
	errSilence = errors.New("no answer")
)

func plain(err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return errReset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errClosed
	case errors.As(err, &timeout) && timeout.Timeout():
		return errSilence
	}
	return err
}

func anyOf(names []string) string { return "an answer by " + strings.Join(names, " or ") }

// answered waits until one of names answers clients of a port.
func (t *trial) answered(port int, limit time.Duration, names ...string) {
	t.do(askByHand(port), "wait until a client of port %d is answered by %s", port, strings.Join(names, " or "))
	t.soon(limit, anyOf(names), func() error {
		name, err := ask(port, patience)
		if err == nil && !slices.Contains(names, name) {
			err = fmt.Errorf("an answer by %s", name)
		}
		return err
	})
}

// asks is one client that must be answered, by one of names.
func (t *trial) asks(port int, names ...string) string {
	t.do(askByHand(port), "a client of port %d asks", port)
	began := time.Now()
	name, err := ask(port, patience)
	took := time.Since(began).Round(time.Millisecond)
	switch {
	case err != nil:
		t.fail(anyOf(names), "%v, after %v", err, took)
	case !slices.Contains(names, name):
		t.fail(anyOf(names), "an answer by %s", name)
	}
	t.say("  %s, after %v", name, took)
	return name
}

// opened waits until a port is open.
func (t *trial) opened(port int) {
	t.do(askByHand(port), "wait until port %d is open", port)
	t.soon(startLimit, "an open port", func() error {
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err != nil {
			return plain(err)
		}
		return conn.Close()
	})
}

// refused waits until a port refuses.
func (t *trial) refused(port int) {
	t.do(askByHand(port), "wait until port %d refuses", port)
	t.soon(changeLimit, "a closed port: connection refused", func() error {
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err == nil {
			conn.Close()
			return errors.New("the port is open")
		}
		if err = plain(err); !errors.Is(err, errRefused) {
			return fmt.Errorf("the port is open, and a client sees: %w", err)
		}
		return nil
	})
}

// turnedAway waits until clients of an open port are turned away at once.
func (t *trial) turnedAway(port int, limit time.Duration) {
	t.do(askByHand(port), "wait until a client of port %d is turned away at once", port)
	t.soon(limit, "an open port that resets or closes the connection at once", func() error {
		name, err := ask(port, limit/2)
		switch {
		case err == nil:
			return fmt.Errorf("an answer by %s", name)
		case errors.Is(err, errReset), errors.Is(err, errClosed):
			return nil
		}
		return err
	})
}

// connects is a client that stays: it has the name of its endpoint already.
func (t *trial) connects(port int) *net.TCPConn {
	t.do(talkByHand(port), "a client of port %d connects and stays", port)
	conn, err := net.DialTimeout("tcp", address(port), patience)
	if err != nil {
		t.fail("a connection", "%v", plain(err))
	}
	t.atEnd(func() { conn.Close() })
	name, err := readName(conn, patience)
	if err != nil {
		t.fail("the endpoint's first line", "%v", err)
	}
	t.say("  %s", name)
	return conn.(*net.TCPConn)
}

// echoes sends some bytes over a connection to a named endpoint, and wants them back unchanged.
func (t *trial) echoes(conn net.Conn, n int, byHand string) {
	t.do(byHand, "%d bytes go to the endpoint and come back", n)
	data, got := make([]byte, n), make([]byte, n)
	_, _ = rand.Read(data) // never fails
	t.must(conn.SetDeadline(time.Now().Add(3 * patience)))
	go func() { _, _ = conn.Write(data) }() // the reader sees what is missing
	k, err := io.ReadFull(conn, got)
	switch {
	case err != nil:
		t.fail(itoa(n)+" bytes back", "%d bytes, then: %v", k, plain(err))
	case !bytes.Equal(got, data):
		t.fail("the same bytes back", "other bytes")
	}
}

// datagram sends one over a connected UDP socket until it is answered, and returns the name of the endpoint. Each attempt has a number, so
// that a late answer is not taken for the next one's.
func datagram(conn net.Conn, text string) (string, error) {
	buf, last := make([]byte, 65536), errSilence
	for attempt := range 10 {
		sent := fmt.Sprintf("%s %d %d", text, attempt, time.Now().UnixNano())
		if _, err := conn.Write([]byte(sent)); err != nil {
			last = plain(err) // an earlier one was refused: by ICMP
			continue
		}
		if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
			return "", err
		}
		for {
			n, err := conn.Read(buf)
			if err != nil {
				last = plain(err)
				break
			}
			if name, rest, _ := strings.Cut(string(buf[:n]), ":"); rest == sent {
				return name, nil
			}
		}
		if errors.Is(last, errRefused) {
			time.Sleep(10 * time.Millisecond)
		}
	}
	return "", last
}
