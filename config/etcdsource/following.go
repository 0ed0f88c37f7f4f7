package etcdsource

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

// A following is what a session knows of keys outside the registry that elect endpoints: see [kubeproxy/config/records.Holder]. They are watched and
// listed as the prefix is, so what holds for the prefix holds for them:
//
//	a record names a key ─▶ watch it, over the same stream ─▶ created ─▶ list the prefix and the key, at one revision ─▶ SET
//
// What one transaction changes in several watches comes in several responses. So changes are held until etcd has said, over the same stream, that it
// has told of everything up to their revision: for a round trip. Its fields belong to the goroutine in Run.
type following struct {
	watches    map[string]int64 // ids of the watches that stand, by key
	pendingKey string           // the key whose watch was asked for and is not created; "": none
	lastID     int64
	refused    map[string]bool // keys that are not watched, though records name them
	ended      map[string]bool // keys whose watch etcd has ended, and no list is in since
	patient    bool            // what is held was overdue once, and waits for what the inbox had then
	mustList   bool            // a watch has come to stand, and no list is in that was asked for since: it has to be the newest
}

// firstID is the least id of a watch of one key. Etcd numbers from 0 the watches for which no id is given.
const firstID = 1 << 32

// follow has the next key watched that records name, and ends watches of keys that they name no more. It reports whether a watch is under way: then
// a list is to come. While a list or a challenge is under way it does nothing: a challenge is answered as it is.
func (x *session) follow() (waits bool) {
	named := x.records.HolderKeys()
	maps.DeleteFunc(x.watches, func(key string, id int64) bool {
		_, is := slices.BinarySearch(named, key)
		return !is && x.watch.end(id)
	})
	if x.pendingKey != "" || x.lists.busy || x.unproved != nil || x.met != x.challenges {
		return x.pendingKey != ""
	}
	for i, key := range named {
		if _, stands := x.watches[key]; stands || x.refused[key] {
			continue
		}
		x.lastID++
		switch {
		case i >= maxHolderKeys:
			x.refuse(key, fmt.Sprintf("records name more than %d keys", maxHolderKeys))
		case !x.watch.follow(key, firstID+x.lastID): // too many requests wait: with the next period
			return false
		default:
			x.pendingKey = key
			x.proof.Reset(x.cfg.RequestTimeout)
			return true
		}
	}
	return false
}

// refuse notes that a key is not watched. What it elected last stays, as while etcd is away; if it was never read, it elects nobody. It is tried again
// with the next resync.
func (x *session) refuse(key, why string) {
	x.refused[key] = true
	if x.records.Refuse(key) && !x.stood.IsZero() {
		x.send(x.ctx, false, time.Now())
	}
	if note, ok := x.refusals.Allow(key); ok {
		glog.Errorf("key %s cannot be followed, so the endpoints that it elected last stay (none if it was never read): %s%s", registry.Quote(key), why, note)
	}
}

// errOldToken ends a session whose stream keeps the token that it began with, though that has expired or the password has changed. Or it has none, and
// authentication was turned on since. The next session logs in anew.
var errOldToken = errors.New("the stream of the watch needs a new login")

// followed handles the answer to the request for a watch of a key.
func (x *session) followed(n notice) error {
	key := x.pendingKey
	x.pendingKey = ""
	switch {
	case strings.HasSuffix(n.refused, rpctypes.ErrInvalidAuthToken.Error()), strings.HasSuffix(n.refused, rpctypes.ErrAuthOldRevision.Error()),
		strings.HasSuffix(n.refused, rpctypes.ErrUserEmpty.Error()) && x.cfg.Username != "":
		err := remote.Because(Refused, fmt.Errorf("watch of key %s refused: %s", registry.Quote(key), registry.Quote(n.refused)))
		if x.stood.IsZero() || time.Since(x.stood) < maxBackoff {
			return err // a new token is refused: an operator has to know
		}
		return remote.Because(Cancelled, fmt.Errorf("%w: %w", errOldToken, err))
	case n.refused != "":
		x.refuse(key, "etcd says "+registry.Quote(n.refused))
	case n.id != firstID+x.lastID: // it is taken back
		x.refuse(key, "an etcd before 3.4 or etcd's grpc-proxy answers; name members of etcd itself")
	default:
		x.watches[key], x.mustList = n.id, true
		x.records.Untold(key)
	}
	switch {
	case x.follow():
	case x.stood.IsZero() && x.mustList:
		x.mustList = false
		x.ask(0, false) // and not from a member that lags behind the watch
	case x.stood.IsZero():
		return x.open()
	case x.mustList:
		x.Resync()
	}
	return nil
}

// unfollow handles that etcd has ended the watch of a key. A member that is restored from a snapshot so ends each watch that was told of nothing since
// before the last compaction. What it had to tell is lost: a new one begins at once, and a list follows. Etcd counts the old one as a watch that is
// behind, and answers no request for progress, until it is asked to end it.
func (x *session) unfollow(n notice) {
	for key, id := range x.watches {
		if id != n.id {
			continue
		}
		delete(x.watches, key)
		if x.watch.end(id); x.ended[key] {
			x.refuse(key, "etcd says "+registry.Quote(n.refused))
		}
		x.ended[key] = true
	}
	x.follow()
}

// release applies the changes that are held, up to a revision that all watches have come to.
func (x *session) release(upTo int64) error {
	held, at := x.held.Events, x.heldAt
	slices.SortStableFunc(held, func(a, b *mvccpb.Event) int { return int(a.Kv.ModRevision - b.Kv.ModRevision) })
	n, _ := slices.BinarySearchFunc(held, upTo, func(ev *mvccpb.Event, upTo int64) int { return cmp.Or(cmp.Compare(ev.Kv.ModRevision, upTo), -1) })
	x.held, x.heldAt, x.patient = events.Backlog{}, time.Time{}, false
	if x.held.Add(held[n:]); n < len(held) {
		x.heldAt = time.Now() // they came since etcd was asked, and it has a period more to tell of the rest
	}
	return x.apply(held[:n], at)
}

// askAgain asks how far etcd has told, unless it is being asked.
func (x *session) askAgain() {
	if x.asked.IsZero() {
		x.request()
	}
}

// overdue releases changes that have been held for a whole period: etcd does not say how far it has told, as while it is behind with one of the watches.
// Where more waits in the inbox, the rest of them may be there: they have one period more.
func (x *session) overdue() error {
	switch {
	case len(x.held.Events) == 0 || time.Since(x.heldAt) < x.cfg.ProbePeriod:
	case !x.patient && !x.watch.inbox.empty():
		x.patient = true
	default:
		return x.release(math.MaxInt64)
	}
	return nil
}

// unread ends the watches of keys that a list could not read: a change alone would not tell what they say.
func (x *session) unread(keys map[string]error) {
	for key, err := range keys {
		if id, stands := x.watches[key]; stands { // records may name it no more since the list was asked for
			if x.watch.end(id) {
				delete(x.watches, key)
			}
			x.refuse(key, "it cannot be read: "+registry.Quote(err.Error()))
		}
	}
}
