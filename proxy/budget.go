package proxy

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/golang/glog"
	"golang.org/x/sync/semaphore"

	"kubeproxy/internal/lograte"
)

// A budget shares out the descriptors that clients can make us open. It is the hard limit behind those
// of limits.go, and reached where listeners or a low descriptor limit leave less than these assume. When
// they are used up, new clients wait in the kernel's queue until others leave, and what is open goes on. v0.4 ran into
// the system's limit instead: then nothing else could be opened either, not even a connection to
// etcd, and accepting became a hot loop (D38).
//
// A listening socket and a UDP session cost one, a TCP client costs two: its own connection and the
// one to its endpoint.
type budget struct {
	limit   int                 // the descriptor limit of this process
	clients int                 // how many of them clients and listeners may have
	most    int                 // how many of those listeners may have
	free    *semaphore.Weighted // first come, first served
	used    atomic.Int64        // descriptors that clients and listeners have
	open    atomic.Int64        // those of them that listeners have
	inHand  atomic.Int64        // clients accepted, and waiting in acquire
	hands   int64               // how many of those there may be

	scarce lograte.Limiter[struct{}] // lines about the lack of them
}

// errNoDescriptors is what those get for whom there is no room.
var errNoDescriptors = errors.New("out of descriptors")

// reserve is how many descriptors clients never get. The process itself has a dozen open (the
// standard streams, the network poller, log files, two connections to etcd, listeners for HTTP) and
// opens more at times: connections to other members of etcd, look-ups of names, requests of
// operators. Some more are for clients in hand: that there is no room shows only after a client has
// been accepted, and this may happen to every listener at once.
//
// Where the limit is low the reserve is a third of it.
const reserve = 128

func newBudget(limit int) *budget {
	kept, clients := min(reserve, limit/3), clientShare(limit)
	return &budget{
		limit:   limit,
		clients: clients,
		most:    listenerShare(limit),
		free:    semaphore.NewWeighted(int64(clients)),
		hands:   int64(max(1, kept/4)),
	}
}

// clientShare is how many descriptors of a limit clients and listeners may have.
func clientShare(limit int) int {
	return max(limit-min(reserve, limit/3), 1+2) // at least a listener and a client of it
}

// listenerShare is how many descriptors of a limit listeners may have: three quarters of what clients and
// listeners have together. A port is worth nothing when its clients find no descriptors: rather fewer
// services than none that works.
func listenerShare(limit int) int {
	share := clientShare(limit)
	return share - max(share/4, 2)
}

// descriptorsFor is the lowest limit that has room for so many listeners.
func descriptorsFor(listeners int) int {
	limit := listeners
	for listenerShare(limit) < listeners {
		limit++
	}
	return limit
}

// takeForListener takes the descriptor of one more listener, if it is to be had at once.
func (b *budget) takeForListener() error {
	if b.open.Add(1) > int64(b.most) {
		b.open.Add(-1)
		return fmt.Errorf("%w: of the limit of %d, listeners may have %d and have them all", errNoDescriptors, b.limit, b.most)
	}
	if !b.take(1) {
		b.open.Add(-1)
		return fmt.Errorf("%w: of the limit of %d, clients have all that listeners leave", errNoDescriptors, b.limit)
	}
	return nil
}

func (b *budget) releaseOfListener() {
	b.open.Add(-1)
	b.release(1)
}

// acquire takes n descriptors, and waits for them if it must. It fails when ctx ends, and when too
// many wait already: the caller has a client in hand, which costs a descriptor as well.
func (b *budget) acquire(ctx context.Context, n int) error {
	if b.tryAcquire(n) {
		return nil
	}
	defer b.inHand.Add(-1)
	if b.inHand.Add(1) > b.hands {
		return errNoDescriptors
	}
	if err := b.free.Acquire(ctx, int64(n)); err != nil {
		return err
	}
	b.used.Add(int64(n))
	return nil
}

// take takes n descriptors if they are to be had at once, for something that can be done without.
func (b *budget) take(n int) bool {
	if !b.free.TryAcquire(int64(n)) {
		return false
	}
	b.used.Add(int64(n))
	return true
}

// tryAcquire takes n descriptors if they are to be had at once.
func (b *budget) tryAcquire(n int) bool {
	if b.take(n) {
		return true
	}
	if note, ok := b.scarce.Allow(struct{}{}); ok {
		glog.Warningf("out of descriptors: of the limit of %d, listeners and clients have all the %d that they may have; new clients wait. "+
			"If this lasts, raise the limit (ulimit -n, or LimitNOFILE= of a systemd unit)%s", b.limit, b.clients, note)
	}
	return false
}

func (b *budget) release(n int) {
	b.used.Add(-int64(n))
	b.free.Release(int64(n))
}
