package admit

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/golang/glog"
	"golang.org/x/sync/semaphore"

	"kubeproxy/internal/lograte"
)

// A Budget shares out the descriptors that clients can make the process open. It is the hard limit behind those
// of connections and sessions, and reached where listeners or a low descriptor limit leave less than these assume. When
// they are used up, new clients wait in the kernel's queue until others leave, and what is open goes on. v0.4 ran into
// the system's limit instead: then nothing else could be opened either, not even a connection to
// etcd, and accepting became a hot loop (D38).
//
// A listening socket and a UDP session cost one, a TCP client costs two: its own connection and the
// one to its endpoint.
type Budget struct {
	Limit   int                 // the descriptor limit of this process
	Clients int                 // how many of them clients and listeners may have
	Most    int                 // how many of those listeners may have
	free    *semaphore.Weighted // first come, first served
	Used    atomic.Int64        // descriptors that clients and listeners have
	Open    atomic.Int64        // those of them that listeners have
	InHand  atomic.Int64        // clients accepted, and waiting in acquire
	hands   int64               // how many of those there may be

	scarce lograte.Limiter[struct{}] // lines about the lack of them
}

// ErrNoDescriptors is the error when the budget has no descriptor left.
var ErrNoDescriptors = errors.New("out of descriptors")

// reserve is how many descriptors clients never get. The process itself has a dozen open (the
// standard streams, the network poller, log files, two connections to etcd, listeners for HTTP) and
// opens more at times: connections to other members of etcd, look-ups of names, requests of
// operators. Some more are for clients in hand: that there is no room shows only after a client has
// been accepted, and this may happen to every listener at once.
//
// Where the limit is low the reserve is a third of it.
const reserve = 128

// NewBudget shares out a descriptor limit.
func NewBudget(limit int) *Budget {
	kept, clients := min(reserve, limit/3), ClientShare(limit)
	return &Budget{
		Limit:   limit,
		Clients: clients,
		Most:    listenerShare(limit),
		free:    semaphore.NewWeighted(int64(clients)),
		hands:   int64(max(1, kept/4)),
	}
}

// ClientShare is how many descriptors of a limit clients and listeners may have.
func ClientShare(limit int) int {
	return max(limit-min(reserve, limit/3), 1+2) // at least a listener and a client of it
}

// listenerShare is how many descriptors of a limit listeners may have: three quarters of what clients and
// listeners have together. A port is worth nothing when its clients find no descriptors: rather fewer
// services than none that works.
func listenerShare(limit int) int {
	share := ClientShare(limit)
	return share - max(share/4, 2)
}

// DescriptorsFor is the lowest limit that has room for so many listeners.
func DescriptorsFor(listeners int) int {
	limit := listeners
	for listenerShare(limit) < listeners {
		limit++
	}
	return limit
}

// TakeForListener takes the descriptor of one more listener, if it is to be had at once.
func (b *Budget) TakeForListener() error {
	if b.Open.Add(1) > int64(b.Most) {
		b.Open.Add(-1)
		return fmt.Errorf("%w: of the limit of %d, listeners may have %d and have them all", ErrNoDescriptors, b.Limit, b.Most)
	}
	if !b.Take(1) {
		b.Open.Add(-1)
		return fmt.Errorf("%w: of the limit of %d, clients have all that listeners leave", ErrNoDescriptors, b.Limit)
	}
	return nil
}

// ReleaseOfListener gives back what TakeForListener took.
func (b *Budget) ReleaseOfListener() {
	b.Open.Add(-1)
	b.Release(1)
}

// Acquire takes n descriptors, and waits for them if it must. It fails when ctx ends, and when too
// many wait already: the caller has a client in hand, which costs a descriptor as well.
func (b *Budget) Acquire(ctx context.Context, n int) error {
	if b.TryAcquire(n) {
		return nil
	}
	defer b.InHand.Add(-1)
	if b.InHand.Add(1) > b.hands {
		return ErrNoDescriptors
	}
	if err := b.free.Acquire(ctx, int64(n)); err != nil {
		return err
	}
	b.Used.Add(int64(n))
	return nil
}

// TakeSpare takes n descriptors for something that can be done without: none of the last ones, which are for new clients and for ports.
// Calls at one moment may take one each of those.
func (b *Budget) TakeSpare(n int) bool {
	return b.Used.Load()+int64(n) <= int64(b.Clients-b.Last()) && b.Take(n)
}

// Last is how many descriptors TakeSpare leaves: an eighth.
func (b *Budget) Last() int { return b.Clients / 8 }

// Take takes n descriptors if they are to be had at once, and says nothing if not.
func (b *Budget) Take(n int) bool {
	if !b.free.TryAcquire(int64(n)) {
		return false
	}
	b.Used.Add(int64(n))
	return true
}

// TryAcquire takes n descriptors if they are to be had at once.
func (b *Budget) TryAcquire(n int) bool {
	if b.Take(n) {
		return true
	}
	if note, ok := b.scarce.Allow(struct{}{}); ok {
		glog.Warningf("out of descriptors: of the limit of %d, listeners and clients have all the %d that they may have; new clients wait. "+
			"If this lasts, raise the limit (ulimit -n, or LimitNOFILE= of a systemd unit)%s", b.Limit, b.Clients, note)
	}
	return false
}

// Release gives back n descriptors. Those who wait in Acquire get them first.
func (b *Budget) Release(n int) {
	b.Used.Add(-int64(n))
	b.free.Release(int64(n))
}
