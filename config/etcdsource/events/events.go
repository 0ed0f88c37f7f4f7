// Package events has what needs to be known of a list of events of etcd: how much memory it takes, up to where it tells, where a transaction
// in it ends, which of its events later ones have overtaken, what they say of keys that elect endpoints and of records, and how they are logged.
// The events of a list are in the order of their revisions.
package events

import (
	"bytes"
	"slices"
	"strings"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"kubeproxy/config/records"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

// Overhead is what an event takes beside its key and its value, in bytes, roughly.
const Overhead = 256

func size(ev *mvccpb.Event) int {
	return Overhead + len(ev.GetKv().GetKey()) + len(ev.GetKv().GetValue())
}

// Bytes returns how much memory events take, roughly.
func Bytes(events []*mvccpb.Event) (bytes int) {
	for _, ev := range events {
		bytes += size(ev)
	}
	return bytes
}

// Revision returns the revision of the last of some events; 0 if there are none.
func Revision(events []*mvccpb.Event) (revision int64) {
	for _, ev := range events {
		revision = max(revision, ev.GetKv().GetModRevision())
	}
	return revision
}

// Split cuts events before those of the last revision.
func Split(events []*mvccpb.Event) (whole, begun []*mvccpb.Event) {
	if len(events) == 0 {
		return nil, nil
	}
	last := events[len(events)-1].GetKv().GetModRevision()
	i := len(events)
	for i > 0 && events[i-1].GetKv().GetModRevision() == last {
		i--
	}
	return events[:i:i], slices.Clone(events[i:])
}

// Newest keeps the last event of each key, in order, and returns how many bytes the others had.
func Newest(events []*mvccpb.Event) (kept []*mvccpb.Event, freed int) {
	if eachKeyOnce(events) {
		return events, 0
	}
	seen := make(map[string]bool)
	for i := len(events) - 1; i >= 0; i-- {
		key := string(events[i].GetKv().GetKey())
		if seen[key] {
			freed += size(events[i])
			continue
		}
		seen[key] = true
		kept = append(kept, events[i])
	}
	slices.Reverse(kept)
	return kept, freed
}

// eachKeyOnce reports whether the keys of events ascend, as those of one deletion of a range do. It costs no memory, however many.
func eachKeyOnce(events []*mvccpb.Event) bool {
	for i := 1; i < len(events); i++ {
		if bytes.Compare(events[i-1].GetKv().GetKey(), events[i].GetKv().GetKey()) >= 0 {
			return false
		}
	}
	return true
}

// LastSlices returns what was put last to each key of a slice. Who deletes a slice on purpose takes it off its lease first, or says that it
// is not ready; the deletion must not overtake that, or it would be taken for the end of the lease.
func LastSlices(events []*mvccpb.Event) map[string]*mvccpb.KeyValue {
	last := make(map[string]*mvccpb.KeyValue)
	for _, ev := range events {
		if ev.Type == mvccpb.Event_PUT && bytes.HasPrefix(ev.Kv.GetKey(), slicesPrefix) {
			last[string(ev.Kv.Key)] = ev.Kv
		}
	}
	return last
}

var slicesPrefix = []byte(registry.EndpointSlicesPrefix)

// MaxWaiting bounds the bytes that wait between the watch stream and the session. Ten values of etcd's default limit
// (1.5 MiB) fit; the session decodes 16 MiB in about half a second.
const MaxWaiting = 16 << 20

// A Backlog is a list of events that wait, in order. Beyond MaxWaiting it drops those that a later event of the same key
// has overtaken.
type Backlog struct {
	Events []*mvccpb.Event
	Size   int // bytes
	limit  int // beyond it events are dropped
}

// Add adds events.
func (b *Backlog) Add(more []*mvccpb.Event) {
	b.Events = append(b.Events, more...)
	b.Size += Bytes(more)
	if b.Size > max(b.limit, MaxWaiting) {
		var freed int
		b.Events, freed = Newest(b.Events)
		b.Size -= freed
		b.limit = b.Size / 3 * 4 // a pass over all events costs: not before a quarter of them is new
	}
}

// HolderOf returns what a change of a key outside the registry says.
func HolderOf(ev *mvccpb.Event) records.Holder {
	value := ev.Kv.Value[:min(len(ev.Kv.Value), patroni.MaxValue+1)] // or it is too long whatever follows
	return records.Holder{Key: string(ev.Kv.Key), Value: strings.TrimSpace(string(value)), Gone: ev.Type == mvccpb.Event_DELETE, Created: ev.Kv.CreateRevision, Version: ev.Kv.Version, Seen: ev.Kv.ModRevision}
}

// VersionOf gives a key-value as records take it: nothing is copied.
func VersionOf(kv *mvccpb.KeyValue) records.Version {
	return records.Version{Key: kv.Key, Value: kv.Value, Created: kv.CreateRevision, Revision: kv.ModRevision, Leased: kv.Lease != 0}
}

// Narrate logs an event, at verbosity 4.
func Narrate(ev *mvccpb.Event) {
	if v := glog.V(4); v {
		what := "set"
		if ev.Type == mvccpb.Event_DELETE {
			what = "delete"
		}
		v.Infof("etcd %s %s @%d", what, registry.Quote(string(ev.Kv.Key)), ev.Kv.ModRevision)
	}
}
