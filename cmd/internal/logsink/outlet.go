package logsink

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"

	"github.com/golang/glog"
)

// room is how many bytes may wait for one destination: ten thousand lines, more or less.
const room = 1 << 20

// An outlet is the bounded queue of one destination, and the goroutine that empties it.
type outlet struct {
	name       string
	to         io.Writer
	priorities bool        // each line begins with its priority, as the journal reads it
	reopen     atomic.Bool // to is a reopener, and is to be reopened

	mu      sync.Mutex    // guards the fields below
	pending []byte        // whole lines, but for those longer than the reader's buffer
	writing bool          // the writer has taken lines that it has not written
	idle    chan struct{} // closed when nothing is pending or being written; nil when no caller waits
	lost    uint64        // lines, since the last line that said so
	why     error         // the last of them that could not be written; nil: there was no room

	wake chan struct{} // capacity 1
}

type reopener interface{ Reopen() }

func newOutlet(name string, to io.Writer) *outlet {
	o := &outlet{name: name, to: to, wake: make(chan struct{}, 1)}
	go o.run()
	return o
}

// put queues a line, or counts it as lost. It never waits.
func (o *outlet) put(severity int, line []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.pending)+len(line) > room {
		o.loseLocked(1, nil)
		return
	}
	if o.priorities {
		o.pending = append(o.pending, priorities[severity]...)
	}
	o.pending = append(o.pending, line...)
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outlet) loseLocked(lines uint64, why error) {
	o.lost += lines
	o.why = why
	dropped.Add(lines)
}

// drained returns a channel that is closed once everything queued has been handed to the destination, or lost.
func (o *outlet) drained() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.idle == nil {
		o.idle = make(chan struct{})
	}
	idle := o.idle
	o.toldIdleLocked()
	return idle
}

// toldIdleLocked wakes those who wait for the queue to be empty, if it is.
func (o *outlet) toldIdleLocked() {
	if o.idle != nil && len(o.pending) == 0 && !o.writing {
		close(o.idle)
		o.idle = nil
	}
}

// run writes what is queued, for as long as the process lives.
func (o *outlet) run() {
	var lines []byte
	torn := false // the last write broke off within a line
	for range o.wake {
		o.mu.Lock()
		lines, o.pending = o.pending, lines[:0]
		o.writing = len(lines) > 0
		o.mu.Unlock()
		if len(lines) == 0 {
			continue
		}
		if o.reopen.Swap(false) {
			o.to.(reopener).Reopen()
			torn = false
		}
		var done int
		var err error
		if torn {
			_, err = io.WriteString(o.to, "\n")
		}
		if err == nil {
			done, err = o.to.Write(lines)
			torn = done > 0 && lines[done-1] != '\n'
		}
		o.wrote(lines[done:], err)
		if cap(lines) > room/16 { // a burst is over
			lines = nil
		}
	}
}

// wrote counts the lines that could not be written, and logs how many were lost once lines can be written again.
func (o *outlet) wrote(rest []byte, err error) {
	o.mu.Lock()
	if err != nil {
		o.loseLocked(uint64(bytes.Count(rest, []byte{'\n'})), err)
	}
	o.writing = false
	lost, why := o.lost, o.why
	healed := err == nil && len(o.pending) == 0
	if healed {
		o.lost, o.why = 0, nil
	}
	o.toldIdleLocked()
	o.mu.Unlock()
	switch {
	case lost == 0 || !healed:
	case why != nil:
		glog.Warningf("%d log lines to %s were lost: %v", lost, o.name, why)
	default:
		glog.Warningf("%d log lines to %s were lost: they came faster than they could be written", lost, o.name)
	}
}

var dropped atomic.Uint64
