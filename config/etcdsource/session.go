package etcdsource

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"kubeproxy/config"
	"kubeproxy/config/etcdsource/events"
	"kubeproxy/config/remote"
	"kubeproxy/internal/backoff"
	"kubeproxy/registry"
)

// A session is one watch stream and what goes with it, from its opening to its end. It is never
// resumed. Its fields belong to the goroutine in Run.
type session struct {
	*Source
	ctx     context.Context
	watch   *watch
	created bool           // the watch stands; a list must say from where
	stood   time.Time      // when the list was in; zero before
	watched uint64         // the cluster id behind the watch; 0 when a proxy does not say
	heard   int64          // everything up to this revision has been delivered, or was in the list
	merged  int64          // the revision of the last list
	opening *listing       // the first list, while it is not complete
	held    events.Backlog // came before the first list, or waits for what other watches deliver
	heldAt  time.Time      // when the oldest of them was received

	listing listRequest
	touched map[string]int64 // while a resync is under way: the revision of the last event of a key
	next    *time.Timer      // the next resync
	retry   backoff.Pauses   // between resyncs that fail

	unproved   *listing    // a list that is in; whether it is of the same etcd as the watch is being asked
	challenges int         // sent to the watch
	met        int         // how many of them were answered; they keep their order
	awaited    int         // the number of the one whose answer proves it; 0 when it could not be sent
	proof      *time.Timer // until when

	probe
	clock
	following
}

// A listRequest is the list that was asked for last.
type listRequest struct {
	revision int64 // 0 for the newest
	weak     bool  // a member that lags may answer
	atLeast  int64 // what the newest cannot be older than: as much had been heard of
}

// attend opens a session and stays with it until it ends. It returns whether the session stood, and why it ended.
func (s *Source) attend(ctx context.Context) (stood bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	x := &session{
		Source: s,
		ctx:    ctx,
		watch:  startWatch(ctx, &s.cfg, s.fragments),
		next:   time.NewTimer(s.cfg.SyncPeriod), // begins anew with the first list
		proof:  time.NewTimer(0),
		probe:  probe{timer: time.NewTimer(s.cfg.ProbePeriod)},

		following: following{watches: make(map[string]int64), refused: make(map[string]bool), ended: make(map[string]bool)},
	}
	defer func() {
		cancel()
		x.watch.stop()
		s.lists.take()
		s.probes.take()
		s.lists.close() // whatever ended the session may have happened to these connections, too
		s.probes.close()
		for _, timer := range []*time.Timer{x.next, x.proof, x.timer} {
			timer.Stop()
		}
	}()
	for {
		if err := x.step(); err != nil {
			return !x.stood.IsZero(), err
		}
	}
}

// step waits for whatever comes next and deals with it. An error ends the session.
func (x *session) step() error {
	var resync <-chan struct{} // nil channels are never ready
	var due, silence, late <-chan time.Time
	if !x.stood.IsZero() {
		silence = x.timer.C
	}
	switch {
	case x.unproved != nil || x.pendingKey != "":
		late = x.proof.C
	case !x.stood.IsZero() && !x.lists.busy:
		resync, due = x.resync, x.next.C
	}
	select {
	case <-x.watch.inbox.ready:
		return x.receive(x.watch.inbox.take())
	case <-x.watch.over:
		if err := x.receive(x.watch.inbox.take()); err != nil {
			return err
		}
		return x.watch.err
	case a := <-x.lists.answers:
		x.lists.busy = false
		return x.listed(a)
	case a := <-x.probes.answers:
		x.probes.busy = false
		return x.probed(a)
	case <-resync:
		x.startResync()
	case <-due:
		x.startResync()
	case <-late:
		return x.unproven()
	case <-silence:
		return x.period()
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
	return nil
}

// receive handles what the watch has delivered.
func (x *session) receive(d delivery) error {
	if d.at.IsZero() {
		return nil
	}
	x.stir()
	switch {
	case len(d.events) == 0:
	case x.stood.IsZero():
		if err := x.hold(d); err != nil {
			return err
		}
	case len(x.watches)+len(x.held.Events) > 0: // the watch of the last key may have gone before what is held
		x.well()
		if x.heldAt.IsZero() {
			x.heldAt = d.at
		}
		if x.held.Add(d.events); x.held.Size > events.MaxWaiting {
			if err := x.release(math.MaxInt64); err != nil {
				return err
			}
		}
		x.askAgain()
	default:
		x.well()
		told := d.events
		d.events = nil // what they come to is all that is kept while it is merged: one deletion may be of all keys
		if err := x.apply(told, d.at); err != nil {
			return err
		}
	}
	for _, n := range d.notices {
		if err := x.note(n); err != nil {
			return err
		}
	}
	x.reached()
	return nil
}

// hold keeps events until the first list is in. Of each key the newest counts: the list has what was before.
func (x *session) hold(d delivery) error {
	if x.heldAt.IsZero() {
		x.heldAt = d.at
	}
	x.held.Add(d.events)
	x.heard = max(x.heard, events.Revision(d.events))
	if x.held.Size > maxRegistry {
		return tooLarge()
	}
	return nil
}

// note handles one notice.
func (x *session) note(n notice) error {
	switch {
	case n.ended:
		x.unfollow(n)
	case n.created && !x.created:
		x.created, x.watched, x.heard = true, n.cluster, max(x.heard, n.revision)
		x.request() // to learn early whether this etcd answers such requests
		// The stream stands, so nothing can fall between it and a list that is asked for now.
		x.ask(0, x.cfg.Weak)
	case n.created && x.pendingKey != "": // no challenge is under way then
		return x.followed(n)
	case n.created:
		if x.met++; x.unproved != nil && x.met == x.awaited {
			return x.use(*x.unproved)
		}
	default: // progress
		if n.answer && !x.stood.IsZero() {
			if err := x.release(n.revision); err != nil {
				return err
			}
		}
		x.heard = max(x.heard, n.revision)
		if n.answer {
			x.answers = true
			if x.answered(); len(x.held.Events) > 0 && !x.stood.IsZero() {
				x.askAgain()
			}
		}
		if !x.stood.IsZero() {
			x.well()
		}
	}
	return nil
}

// apply makes one Update of events that end with a whole transaction: what etcd committed together stays together. Its
// revision is that of the last event. Of each key the newest value is decoded first, and an older one only while that
// is bad: a key that is written faster than it can be decoded costs one decoding an Update.
func (x *session) apply(told []*mvccpb.Event, at time.Time) error {
	told = slices.DeleteFunc(told, func(ev *mvccpb.Event) bool { return ev.GetKv().GetModRevision() <= x.merged })
	if len(told) == 0 {
		return nil // a list knew all of them already
	}
	latest, overtaken := told, 0
	if len(told) > 1 {
		latest, overtaken = events.Newest(told)
	}
	var last map[string]*mvccpb.KeyValue
	if overtaken > 0 {
		last = events.LastSlices(told)
	}
	for _, ev := range told { // each of them: what a later value does not say, an earlier one may
		if !bytes.HasPrefix(ev.Kv.Key, prefixStart) {
			x.records.SetHolder(events.HolderOf(ev))
			x.touch(ev)
		}
	}
	for _, ev := range latest {
		events.Narrate(ev)
		if !bytes.HasPrefix(ev.Kv.Key, prefixStart) {
			continue
		} else if ev.Type == mvccpb.Event_DELETE { // D11: of this key and nothing else; a lease that ran out, too
			if kv := last[string(ev.Kv.Key)]; kv != nil {
				x.records.Put(events.VersionOf(kv))
			}
			x.records.Remove(ev.Kv.Key)
		} else { // D10: every put, the first as well as any later one
			x.records.Put(events.VersionOf(ev.Kv))
		}
		x.touch(ev)
	}
	if overtaken > 0 {
		for _, ev := range slices.Backward(told) {
			x.records.Fill(events.VersionOf(ev.Kv))
		}
	}
	if n := x.records.Len(); n > maxKeys {
		return tooManyKeys()
	}
	x.applied = max(x.applied, events.Revision(told))
	x.heard = max(x.heard, x.applied)
	x.send(x.ctx, false, at) // even when nothing changes by it: the revision has moved
	x.follow()
	return nil
}

// touch remembers a change while a resync is under way.
func (x *session) touch(ev *mvccpb.Event) {
	if x.touched != nil {
		x.touched[string(ev.Kv.Key)] = ev.Kv.ModRevision
	}
}

// ask asks for a list. The newest must show at least what has been heard of by now, and where a member
// that lags may answer, at least what is known: otherwise etcd would seem to have gone back.
func (x *session) ask(revision int64, weak bool) {
	x.listing = listRequest{revision: revision, weak: weak, atLeast: x.heard}
	if weak {
		x.listing.atLeast = max(x.heard, x.applied)
	}
	select {
	case <-x.resync: // this is the list that was asked for
	default:
	}
	x.lists.ask(x.ctx, x.cfg.RequestTimeout, list(revision, weak, x.page, x.cfg.hasStreams() && x.page == x.cfg.pageSize(), slices.Collect(maps.Keys(x.watches)), x.records.NewList))
}

// startResync asks for everything, at the newest revision that the watch is known to have come to. The
// watch goes on meanwhile, and what it says is remembered.
func (x *session) startResync() {
	x.touched = make(map[string]int64)
	if x.mustList {
		x.ask(0, false) // as much as the new watches know, or more
		return
	}
	clear(x.refused)
	x.ask(x.heard, x.cfg.Weak)
}

// listed handles the answer to a list.
func (x *session) listed(a answer) error {
	if a.err != nil {
		return x.unlisted(a.err)
	}
	x.page = min(2*x.page, x.cfg.pageSize())
	switch {
	case x.watched != 0 && a.cluster != x.watched:
		return remote.Because(WentBack, fmt.Errorf("watch and list are of two clusters, %x and %x", x.watched, a.cluster))
	case x.listing.revision == 0 && a.revision < x.listing.atLeast && x.listing.weak:
		x.ask(0, false) // a member that lags: ask them all
		return nil
	case x.listing.revision == 0 && a.revision < x.listing.atLeast:
		return wentBack(x.listing.atLeast, a.revision)
	}
	x.unread(a.unread)
	x.prove(a.listing)
	return nil
}

// unlisted handles a list that failed.
func (x *session) unlisted(err error) error {
	if causeOf(err) == Silent { // a smaller page takes etcd less time, and the network
		x.page = max(x.page/2, 1)
	}
	switch {
	case errors.Is(err, rpctypes.ErrCompacted) && x.listing.revision != 0:
		x.ask(0, x.cfg.Weak) // then the newest, whatever it is
		return nil
	case errors.Is(err, rpctypes.ErrFutureRev):
		return remote.Because(WentBack, fmt.Errorf("it knows nothing of revision %d any more: restored or wiped?", max(x.listing.revision, x.listing.atLeast)))
	case x.stood.IsZero():
		return fmt.Errorf("list: %w", err)
	}
	x.resyncFailed(err)
	return nil
}

// prove has the watch give a sign of life that is younger than the list, before the list is used.
//
// The two came over different connections. If etcd was killed in between, wiped, and started again, the
// list is of the new one, while events of the old one are still on their way to us: no revision would
// tell them apart. But a stream that answers what was asked after the list was in has outlived it,
// so list and events are of the same etcd.
func (x *session) prove(l listing) {
	x.unproved, x.awaited = &l, 0
	if x.watch.challenge() {
		x.challenges++
		x.awaited = x.challenges
	}
	x.proof.Reset(x.cfg.RequestTimeout)
}

// unproven handles a watch that has not answered in time.
func (x *session) unproven() error {
	if key := x.pendingKey; key != "" {
		return remote.Because(Silent, fmt.Errorf("no watch of key %s was created for %v", registry.Quote(key), x.cfg.RequestTimeout))
	}
	x.unproved = nil
	err := remote.Because(Silent, fmt.Errorf("the watch gave no sign of life for %v after a list", x.cfg.RequestTimeout))
	if first := x.stood.IsZero(); first {
		return err
	}
	x.resyncFailed(err) // it may only be slow; the probe will tell if it is dead
	return nil
}

// use applies a list that is known to be of the same etcd as the watch.
func (x *session) use(l listing) error {
	x.unproved = nil
	clear(x.ended)
	if x.stood.IsZero() {
		return x.begin(l)
	}
	x.finishResync(l)
	x.follow() // a key whose watch has ended meanwhile
	return nil
}

// begin starts from the first list. It is the truth, empty or not (D9), whatever was known before. If its records name keys that are not watched, these
// have to be watched first, and then another list shows what they hold.
func (x *session) begin(l listing) error {
	if x.gap == nil {
		x.gap = &gap{first: x.cluster == 0, from: x.applied}
	}
	different, lost := x.records.Merge(l.list, l.revision, nil, x.applied)
	x.gap.different.AddAll(different)
	if x.opening == nil {
		setback, loud := x.setback(l, lost)
		if x.gap.loud = x.gap.loud || loud; setback {
			x.records.WentBack()
		}
	}
	x.opening = &l
	x.cluster, x.applied, x.merged = l.cluster, l.revision, l.revision
	x.heard = max(x.heard, l.revision)
	if x.follow() {
		return nil
	}
	return x.open()
}

// open puts the first list in force.
func (x *session) open() error {
	l, gap := x.opening, x.gap
	x.opening = nil
	x.stood = time.Now()
	x.next.Reset(backoff.Spread(x.cfg.SyncPeriod))
	x.log.Edit(func(st *config.Status) {
		st.Sessions++
		st.Cluster, st.Listed = strconv.FormatUint(l.cluster, 10), l.at
	})
	away, told := x.log.Reads()
	x.send(x.ctx, true, l.at)
	if x.ctx.Err() != nil {
		return x.ctx.Err() // it may not have been sent
	}
	x.gap = nil
	switch {
	case gap.first, x.log.IsUseless():
		x.log.ReportRead(fmt.Sprintf("etcd read at revision %d", l.revision), "keys")
	case away > 0:
		x.recovered(away, told || gap.loud, fmt.Sprintf("read at revision %d, was %d; %s", l.revision, gap.from, gap.different.Differ()))
	}
	x.current(l.asked)
	x.asked = time.Time{}       // etcd drops requests that come before its watch is in step
	x.watch.inbox.blockedOnce() // and nobody took what came before: see behind
	x.wait()                    // the first period begins now
	if len(x.watches) == 0 || len(x.held.Events) == 0 {
		return x.release(math.MaxInt64)
	}
	x.askAgain() // the other watches may not have told of the same revisions yet: they have that period
	return nil
}

// finishResync applies a list that was read beside the watch.
func (x *session) finishResync(l listing) {
	different, divergent := x.records.Merge(l.list, l.revision, x.touched, x.heard)
	x.touched, x.mustList = nil, false
	x.applied, x.merged = max(x.applied, l.revision), l.revision
	x.heard = max(x.heard, x.applied)
	x.retry.Reset()
	x.next.Reset(backoff.Vary(x.cfg.SyncPeriod))
	x.log.Edit(func(st *config.Status) {
		st.Resyncs++
		st.Listed = l.at
		st.Divergences += uint64(divergent.N)
	})
	x.well()
	if divergent.N > 0 {
		glog.Warningf("resync at revision %d mended %d keys that the watch had not told of: %s", l.revision, divergent.N, divergent)
	}
	glog.V(4).Infof("etcd resync @%d: %d keys, %d changed", l.revision, l.list.Len(), different.N)
	x.send(x.ctx, true, l.at)
}

// resyncFailed puts the resync off a little. The watch stands, so what is served is still true; if
// etcd is gone, the watch will soon say so.
func (x *session) resyncFailed(err error) {
	again := x.retry.Begun()
	x.touched = nil
	x.next.Reset(x.retry.Next())
	if !again {
		return
	}
	if note, ok := x.resyncWarnings.Allow(struct{}{}); ok {
		glog.Warningf("no resync with etcd at %v: %s; the watch goes on%s", x.cfg.Endpoints, config.OneLine(err.Error()), note)
	}
}
