//go:build linux

package takeover

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"syscall"
)

// Faults are what clients and backends have noticed.
type faults struct {
	mu    sync.Mutex // guards the fields below
	count map[string]int
	first map[string]string // of each sort, what it was
	held  map[heldFault]bool
}

// A heldFault is what happened to a connection that is held, and is counted once however many of its ends and directions notice.
type heldFault struct {
	id   uint32
	sort string
}

// note counts an error of a client that comes and goes. Nil is none.
func (f *faults) note(who string, err error) {
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.add(sortOf(err), who, err)
	}
}

// noteHeld counts an error of a connection that is held. Nil is none.
func (f *faults) noteHeld(c *connection, who string, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	sort := sortOf(err)
	if fault := (heldFault{c.id, sort}); !f.held[fault] {
		if f.held == nil {
			f.held = make(map[heldFault]bool)
		}
		f.held[fault] = true
		f.add(sort, fmt.Sprintf("%s of connection %d (%s)", who, c.id, c.kind.name), err)
	}
}

func (f *faults) add(sort, who string, err error) {
	if f.count == nil {
		f.count, f.first = make(map[string]int), make(map[string]string)
	}
	if f.count[sort]++; f.count[sort] == 1 {
		f.first[sort] = fmt.Sprintf("%s: %v", who, err)
	}
}

// sortOf says what an error means to a client.
func sortOf(err error) string {
	switch {
	case errors.Is(err, errWrongBytes):
		return "wrong"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENOTCONN):
		return "reset"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, errShort):
		return "missing"
	}
	return "late"
}

var errShort = errors.New("the stream ended before all was there")
