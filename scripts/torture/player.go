//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/scripts/torture/model"
)

// patience is how long a connection may last. Scripts take a few seconds, but a process of low priority may get no processor for minutes.
const patience = 5 * time.Minute

// A player is one side of a connection.
type player struct {
	conn     *net.TCPConn
	part     model.Part
	own      stream         // what it sends
	first    [greeting]byte // what it received first: the number of the other side's stream
	received int64
	sent     atomic.Int64
	heard    chan struct{} // closed when reading has ended

	mu       sync.Mutex // guards the fields below
	over     bool       // the connection is closed, or broken
	wasReset bool       // a write has found it so
	side     model.Side
}

func newPlayer(conn *net.TCPConn, own stream) *player {
	_ = conn.SetDeadline(time.Now().Add(patience)) // cannot fail on an open socket
	return &player{conn: conn, own: own, heard: make(chan struct{}), side: model.Side{Differs: -1}}
}

// play does a part, and returns what the side did and saw.
func (p *player) play(part model.Part, r *rand.Rand) model.Side {
	p.part = part
	if part.Buffer > 0 {
		_ = p.conn.SetReadBuffer(part.Buffer) // cannot fail on an open socket
	}
	var sending sync.WaitGroup
	sending.Go(func() { p.send(r) })
	p.receive()
	close(p.heard)
	sending.Wait()
	return p.end()
}

// end closes the connection, and returns what the side did and saw.
func (p *player) end() model.Side {
	p.conn.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.side.Sent, p.side.Received = p.sent.Load(), p.received
	// The kernel tells of a reset only once. A write that took it leaves an end that looks clean to reading. Behind a true FIN a write fails by EPIPE.
	if p.side.Saw == model.Clean && p.wasReset {
		p.side.Saw = model.WasReset
	}
	return p.side
}

// send sends what the side has to say, and ends it.
func (p *player) send(r *rand.Rand) {
	total := int64(greeting + p.part.Bytes)
	if p.part.End == model.ResetSending {
		total = int64(p.part.At)
	}
	for p.sent.Load() < total {
		if p.sent.Load() >= greeting && p.part.Pause > 0 {
			time.Sleep(rand.N(p.part.Pause))
		}
		n := min(total-p.sent.Load(), int64(1+r.IntN(p.part.Chunk)))
		if !p.write(n) {
			return
		}
	}
	switch p.part.End {
	case model.ResetSending:
		p.reset()
	case model.Leave:
		p.leave()
	case model.FinishLast:
		<-p.heard
		p.finish()
	case model.Finish:
		p.finish()
	case model.ResetReading: // receive does it
	}
}

// write sends the next n bytes of the stream; false: the connection takes no more.
func (p *player) write(n int64) bool {
	data := p.own.at(p.sent.Load(), int(n))
	if p.sent.Load() < greeting {
		data = p.own.greeting()[p.sent.Load():]
		data = data[:min(n, int64(len(data)))]
	}
	done, err := p.conn.Write(data)
	p.sent.Add(int64(done))
	if err == nil {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.side.Reset && !p.side.Left && p.side.SendError == "" {
		p.side.SendError, p.wasReset = err.Error(), errors.Is(err, syscall.ECONNRESET)
	}
	return false
}

// finish sends FIN.
func (p *player) finish() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.side.Finished = p.conn.CloseWrite() == nil // else the connection has just been reset
	}
}

// leave closes the connection.
func (p *player) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.over, p.side.Left = true, true
		p.conn.Close()
	}
}

// reset resets the connection. It notes how many bytes had been acknowledged before. Of what the kernel counts, two may be SYN and FIN.
func (p *player) reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return
	}
	if raw, err := p.conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				p.side.Acked = max(0, int64(info.Bytes_acked)-2)
			}
		})
	}
	p.over, p.side.Reset = true, true
	_ = p.conn.SetLinger(0) // cannot fail on an open socket
	p.conn.Close()
}

// hear notes how reading ended.
func (p *player) hear(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.over:
	case err == io.EOF:
		p.side.Saw = model.Clean
	case errors.Is(err, os.ErrDeadlineExceeded):
		p.over, p.side.Saw = true, model.Hung
	case errors.Is(err, syscall.ECONNRESET):
		p.over, p.side.Saw = true, model.WasReset
	default:
		p.over, p.side.Saw = true, model.WasReset
		p.side.Problem = fmt.Sprintf("reading failed: %v", err)
	}
}

// peer returns the stream of the other side, whose greeting has been received.
func (p *player) peer() stream { return stream(binary.BigEndian.Uint64(p.first[:])) }

// greet receives the greeting of the other side; false: the connection ended before.
func (p *player) greet() bool {
	for p.received < greeting {
		if err := p.read(p.first[p.received:]); err != nil {
			p.hear(err)
			return false
		}
	}
	return true
}

// receive reads until the other side ends, or its part says that this side does.
func (p *player) receive() {
	time.Sleep(p.part.Late)
	buf := make([]byte, 64<<10)
	for {
		into := buf
		if p.received < greeting {
			into = p.first[p.received:]
		}
		if p.part.End == model.ResetReading {
			left := max(0, int64(p.part.At)-p.received)
			if into = into[:min(left, int64(len(into)))]; len(into) == 0 {
				p.reset()
				return
			}
		}
		if p.part.Slow > 0 {
			time.Sleep(p.part.Slow)
		}
		if err := p.read(into); err != nil {
			p.hear(err)
			return
		}
	}
}

// read receives some bytes, and compares those behind the greeting with what the other side sends.
func (p *player) read(into []byte) error {
	n, err := p.conn.Read(into)
	if p.received >= greeting && p.side.Differs < 0 {
		p.side.Differs = p.peer().differs(into[:n], p.received)
	}
	p.received += int64(n)
	return err
}
