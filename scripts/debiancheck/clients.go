//go:build linux

package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// echo serves a listener until it is closed: it sends back what comes.
func echo(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer conn.Close()
			_, _ = io.Copy(conn, conn) // its client notices
		}()
	}
}

// A held connection has bytes under way all the time, each of which its client knows.
type held struct {
	conn   net.Conn
	passed atomic.Uint64 // bytes that came back as they were sent
	done   sync.WaitGroup
	failed atomic.Pointer[error]
}

// hold opens one.
func hold(addr string) (*held, error) {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return nil, err
	}
	h := &held{conn: conn}
	h.done.Go(func() { h.note(h.write()) })
	h.done.Go(func() { h.note(h.read()) })
	return h, nil
}

func (h *held) note(err error) {
	if err != nil && !errors.Is(err, net.ErrClosed) {
		h.failed.CompareAndSwap(nil, &err)
	}
}

// write sends numbers in order, some at a time.
func (h *held) write() error {
	for n := uint64(0); ; {
		var buf []byte
		for range 100 {
			buf = binary.BigEndian.AppendUint64(buf, n)
			n++
		}
		if _, err := h.conn.Write(buf); err != nil {
			return err
		}
		time.Sleep(time.Millisecond) // a megabyte in a second or so
	}
}

// read expects them back.
func (h *held) read() error {
	in := bufio.NewReader(h.conn)
	for want := uint64(0); ; want++ {
		var word [8]byte
		if _, err := io.ReadFull(in, word[:]); err != nil {
			return err
		}
		if got := binary.BigEndian.Uint64(word[:]); got != want {
			return fmt.Errorf("byte %d: number %d came back in place of %d", 8*want, got, want)
		}
		h.passed.Add(8)
	}
}

// goesOn waits until more bytes have come back than are under way now, and returns how many have.
func (h *held) goesOn() (uint64, error) {
	before := h.passed.Load()
	err := await("the held connection goes on", func() bool { return h.failed.Load() != nil || h.passed.Load() > before+1<<20 })
	if failed := h.failed.Load(); failed != nil {
		err = fmt.Errorf("the held connection: %w", *failed)
	}
	return h.passed.Load(), err
}

func (h *held) close() {
	h.conn.Close()
	h.done.Wait()
}

// A press is clients that come one after the other, and ask once each.
type press struct {
	stop                   chan struct{}
	done                   sync.WaitGroup
	answered, refused, cut atomic.Int64
}

// pressOn begins one. A client waits as long as it takes.
func pressOn(addr string) *press {
	p := &press{stop: make(chan struct{})}
	p.done.Go(func() {
		for {
			select {
			case <-p.stop:
				return
			case <-time.After(2 * time.Millisecond):
			}
			switch err := ask(addr); {
			case err == nil:
				p.answered.Add(1)
			case errors.Is(err, syscall.ECONNREFUSED):
				p.refused.Add(1)
			default:
				p.cut.Add(1)
			}
		}
	})
	return p
}

func (p *press) end() string {
	close(p.stop)
	p.done.Wait()
	return fmt.Sprintf("of the clients that came one after the other %d were answered, %d cut, %d refused", p.answered.Load(), p.cut.Load(), p.refused.Load())
}

// ask connects, says a line and wants it back.
func ask(addr string) error {
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	return sayOn(conn)
}

func sayOn(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "hello\n"); err != nil {
		return err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil && line != "hello\n" {
		err = fmt.Errorf("%q came back", line)
	}
	return err
}

// await waits for a state.
func await(what string, is func() bool) error {
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("after %v it is not true that %s", patience, what)
		}
	}
	return nil
}
