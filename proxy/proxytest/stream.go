package proxytest

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// A Stream is a number of bytes that depend on their position and on a seed, so that a byte lost,
// doubled or moved shows.
type Stream struct {
	Seed uint64
	Size int
}

// SendTo writes the stream in pieces of all sizes. It does not end the direction.
func (s Stream) SendTo(conn *net.TCPConn) error {
	sizes := rand.New(rand.NewPCG(s.Seed, 2))
	source := s.source()
	buf := make([]byte, 64<<10)
	for left := s.Size; left > 0; {
		piece := buf[:min(left, 1+sizes.IntN(1<<(1+sizes.IntN(16))))]
		source.Read(piece)
		if _, err := conn.Write(piece); err != nil {
			return fmt.Errorf("send at %d of %d: %w", s.Size-left, s.Size, err)
		}
		left -= len(piece)
	}
	return nil
}

// ReceiveFrom reads the stream, and nothing after it.
func (s Stream) ReceiveFrom(conn *net.TCPConn) error {
	source := s.source()
	buf, want := make([]byte, 32<<10), make([]byte, 32<<10)
	for at := 0; at < s.Size; {
		n, err := conn.Read(buf[:min(len(buf), s.Size-at)])
		source.Read(want[:n])
		if string(buf[:n]) != string(want[:n]) {
			return fmt.Errorf("received other bytes than were sent, at %d of %d", at, s.Size)
		}
		at += n
		if err != nil {
			return fmt.Errorf("receive at %d of %d: %w", at, s.Size, err)
		}
	}
	return nil
}

// ReceiveAllFrom reads the stream and then the end of the direction.
func (s Stream) ReceiveAllFrom(conn *net.TCPConn) error {
	if err := s.ReceiveFrom(conn); err != nil {
		return err
	}
	if n, err := conn.Read(make([]byte, 1)); n > 0 || err != io.EOF {
		return fmt.Errorf("after %d bytes: %d more, %v; want the end", s.Size, n, err)
	}
	return nil
}

func (s Stream) source() *rand.ChaCha8 {
	return rand.NewChaCha8([32]byte{byte(s.Seed), byte(s.Seed >> 8), byte(s.Seed >> 16)})
}
