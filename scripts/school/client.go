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
	"time"

	"kubeproxy/scripts/school/peer"
)

// ask is one client: it connects, reads the name of the endpoint, and leaves.
func ask(port int, patience time.Duration) (string, error) { return peer.Ask(address(port), patience) }

func anyOf(names []string) string { return "an answer by " + strings.Join(names, " or ") }

// answered waits until one of names answers clients of a port.
func (t *trial) answered(port int, limit time.Duration, names ...string) {
	t.do(peer.AskByHand(port), "wait until a client of port %d is answered by %s", port, strings.Join(names, " or "))
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
	t.do(peer.AskByHand(port), "a client of port %d asks", port)
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
	t.do(peer.AskByHand(port), "wait until port %d is open", port)
	t.soon(startLimit, "an open port", func() error {
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err != nil {
			return peer.Plain(err)
		}
		return conn.Close()
	})
}

// refused waits until a port refuses. Nobody connects before it seems closed: a client would wake a thread that waits in accept(2) for a listener
// that is closed already, and so close the port for it.
func (t *trial) refused(port int) {
	t.do(peer.AskByHand(port), "wait until port %d refuses", port)
	if _, known := peer.Listens(port); !known {
		time.Sleep(2 * time.Second)
	}
	t.soon(changeLimit, "a closed port: connection refused", func() error {
		if open, _ := peer.Listens(port); open {
			return errors.New("the port is open")
		}
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err == nil {
			conn.Close()
			return errors.New("the port is open")
		}
		if err = peer.Plain(err); !errors.Is(err, peer.ErrRefused) {
			return fmt.Errorf("the port is open, and a client sees: %w", err)
		}
		return nil
	})
}

// turnedAway waits until clients of an open port are turned away at once.
func (t *trial) turnedAway(port int, limit time.Duration) {
	t.do(peer.AskByHand(port), "wait until a client of port %d is turned away at once", port)
	t.soon(limit, "an open port that resets or closes the connection at once", func() error {
		name, err := ask(port, limit/2)
		switch {
		case err == nil:
			return fmt.Errorf("an answer by %s", name)
		case errors.Is(err, peer.ErrReset), errors.Is(err, peer.ErrClosed):
			return nil
		}
		return err
	})
}

// connects is a client that stays: it has the name of its endpoint already.
func (t *trial) connects(port int) *net.TCPConn {
	t.do(peer.TalkByHand(port), "a client of port %d connects and stays", port)
	conn, err := net.DialTimeout("tcp", address(port), patience)
	if err != nil {
		t.fail("a connection", "%v", peer.Plain(err))
	}
	t.atEnd(func() { conn.Close() })
	name, err := peer.ReadName(conn, patience)
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
		t.fail(itoa(n)+" bytes back", "%d bytes, then: %v", k, peer.Plain(err))
	case !bytes.Equal(got, data):
		t.fail("the same bytes back", "other bytes")
	}
}
