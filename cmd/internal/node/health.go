package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource"
	"kubeproxy/proxy"
)

// health is what a node knows of how it is. Any goroutine may ask.
type health struct {
	stopping context.Context // ends when the node is told to stop
	started  time.Time
	maxAge   time.Duration // of what is served; 0 for any

	source  interface{ Status() etcdsource.Status }
	pending func() config.Pending
	inHand  func() time.Time // when the oldest change that is being applied was received; zero for none
	synced  <-chan struct{}  // closed once the first state is in force
	ports   func() []proxy.PortStatus
	counts  func() [2]proxy.PortCount // of them, by protocol
}

// stuckAfter is how long a change may wait to be applied. Ten thousand services take a second.
const stuckAfter = time.Minute

var errDraining = errors.New("draining: told to stop, and new clients are not accepted any more")

// live tells whether the node's work is getting done. While it drains there is none.
func (h *health) live() error {
	if h.stopping.Err() != nil {
		return nil
	}
	if oldest := h.oldestChange(); !oldest.IsZero() && time.Since(oldest) > stuckAfter {
		return fmt.Errorf("stuck: a change has been waiting for %v to be applied", time.Since(oldest).Round(time.Second))
	}
	return nil
}

// healthy tells whether clients should be sent here.
func (h *health) healthy() error {
	if h.stopping.Err() != nil {
		return errDraining
	}
	return h.live()
}

// ready tells whether what etcd holds is being served. That a port cannot be opened, because another
// program has it, or that no service may have it, is noted and no more: else one record could take every
// node out of service.
func (h *health) ready() (notes []string, err error) {
	var closed, refused int
	for _, c := range h.counts() {
		closed += c.Unopened
		refused += c.Refused
	}
	if closed > 0 {
		notes = append(notes, fmt.Sprintf("ports that services claim and that cannot be opened: %d", closed))
	}
	if refused > 0 {
		notes = append(notes, fmt.Sprintf("ports that services ask for and that none may have: %d", refused))
	}
	if err := h.healthy(); err != nil {
		return notes, err
	}
	select {
	case <-h.synced:
	default:
		if h.source.Status().Ready {
			return notes, errors.New("not yet: the first state has been read from etcd, and is being applied")
		}
		return notes, errors.New("not yet: nothing has been read from etcd")
	}
	if age := h.age(); h.maxAge > 0 && age > h.maxAge {
		return notes, fmt.Errorf("too old: what is served was last known to be what etcd holds %v ago, and -config_max_age is %v", age.Round(time.Second), h.maxAge)
	}
	return notes, nil
}

// age tells how long ago what is served was last known to be what etcd holds. Etcd gives a sign about
// every second, even when nothing changes, and what it told of last has to be in force. Before the
// first state it is the time since the start.
func (h *health) age() time.Duration {
	known := h.started
	select {
	case <-h.synced:
		known = h.source.Status().Heard
	default:
	}
	if oldest := h.oldestChange(); !oldest.IsZero() && oldest.Before(known) {
		known = oldest
	}
	return time.Since(known)
}

// oldestChange tells when the oldest change was received that is not in force yet, zero if there is none.
func (h *health) oldestChange() time.Time {
	oldest := h.inHand()
	if pending := h.pending().Oldest; oldest.IsZero() || !pending.IsZero() && pending.Before(oldest) {
		oldest = pending
	}
	return oldest
}
