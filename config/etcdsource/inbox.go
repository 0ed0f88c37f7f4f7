package etcdsource

import (
	"context"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/etcdsource/events"
)

// An inbox holds what the watch has received and the session has not handled. It is bounded by bytes: when dropping
// makes no room, put blocks, and the flow control of the stream keeps the rest in etcd.
type inbox struct {
	ready chan struct{} // capacity 1: something waits
	room  chan struct{} // capacity 1: everything was taken

	mu      sync.Mutex // guards the fields below
	at      time.Time  // when the oldest of what waits was received; zero when nothing waits
	waiting events.Backlog
	notices []notice
	blocked bool // put has blocked since blockedOnce was called
}

// A delivery is what waited at one moment. The session handles the events before the notices: each notice is true after
// later events, too.
type delivery struct {
	at      time.Time // when the oldest part was received
	events  []*mvccpb.Event
	notices []notice
}

// A notice is a message of the watch without events.
type notice struct {
	created  bool   // a watch was created or refused; otherwise it is a progress report
	answer   bool   // of progress reports: it answers a request
	cluster  uint64 // of the etcd that sent it
	revision int64  // which etcd had reached
	id       int64  // of the watch
	ended    bool   // etcd has ended the watch of a key
	refused  string // why it has, or why none was created
}

func newInbox() *inbox {
	return &inbox{ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// put adds what one message holds. It returns when there is room for the next one, or the cause of ctx's end.
func (b *inbox) put(ctx context.Context, d delivery) error {
	full := b.add(d)
	wake(b.ready)
	for full {
		select {
		case <-b.room:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		b.mu.Lock()
		full = b.fullLocked() // an earlier signal may have waited
		b.mu.Unlock()
	}
	return nil
}

func (b *inbox) add(d delivery) (full bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at.IsZero() {
		b.at = d.at
	}
	b.waiting.Add(d.events)
	b.notices = append(b.notices, d.notices...)
	full = b.fullLocked()
	b.blocked = b.blocked || full
	return full
}

func (b *inbox) fullLocked() bool {
	return b.waiting.Size+events.Overhead*len(b.notices) > events.MaxWaiting
}

// empty reports whether nothing waits.
func (b *inbox) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at.IsZero()
}

// take returns all that waits.
func (b *inbox) take() delivery {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := delivery{b.at, b.waiting.Events, b.notices}
	b.at, b.waiting, b.notices = time.Time{}, events.Backlog{}, nil
	wake(b.room)
	return d
}

// blockedOnce reports whether put has blocked since the last call.
func (b *inbox) blockedOnce() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	blocked := b.blocked
	b.blocked = b.fullLocked()
	return blocked
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
