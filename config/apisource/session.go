package apisource

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/records"
	"kubeproxy/internal/backoff"
	"kubeproxy/registry"
)

// A session is one list and one watch of each resource, until one of them fails. Its fields belong to the goroutine in Run;
// the goroutines that read hand their news over as functions, which that goroutine calls.
type session struct {
	*Source
	ctx       context.Context
	dialect   dialect
	resources []*resource
	news      chan func() error
	calls     sync.WaitGroup
	timer     *time.Timer
	stood     time.Time // when all resources were known; zero before
	lasts     time.Time // when the session will have lasted; zero once that was noted
}

// A resource is what is known of one collection, which outlives sessions, and how far this session has come with it.
type resource struct {
	path
	records *records.State
	status  config.Status // what records say of themselves
	version version       // records are of this version
	told    version       // up to which the watch has told of everything, or the list that it began with

	known    bool // listed in this session, or degraded
	degraded bool // the server refuses to list it: its watch goes on from what was known
	listing  bool // a list is under way
	atLeast  version
	older    int              // lists in a row that were older than what is known
	touched  map[string]int64 // while a list is under way beside the watch: the version of the last event of a key
	watching *watching        // nil: there is no watch
	failed   error            // why the watch ended before the session stood
	due      time.Time        // for the next list
	retry    backoff.Pauses   // between lists that fail

	probing bool      // the question how far the server has come is under way
	probe   time.Time // when to ask it; zero for never
	marks   []mark    // what the server answered, in order, and the watch has not come to

	listed  time.Time // when everything was last read
	current time.Time // everything that was written by then is known
}

// A mark is how far a server had come when it was asked.
type mark struct {
	version version
	asked   time.Time
}

// maxMarks bounds the marks of a resource. A watch without bookmarks, of which other resources change, comes to none of them.
const maxMarks = 8

// watching is one watch. Its news are ignored once the resource has another.
type watching struct{ stop context.CancelFunc }

// confirmations is how many lists in a row must be older than what is known before that is believed: a server may lag
// behind another one for a moment, and what was deleted must not come back for that. The registry that has lost what it had
// goes on being older.
const (
	confirmations = 3
	confirmAfter  = time.Second
)

// probePeriod is how often a server of v1 is asked how far it has come.
const probePeriod = 30 * time.Second

// attend opens a session and stays with it until it ends. It returns whether the session stood, and why it ended.
func (s *Source) attend(ctx context.Context) (stood bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	x := &session{Source: s, ctx: ctx, news: make(chan func() error), timer: time.NewTimer(time.Hour)}
	defer func() {
		cancel()
		x.calls.Wait()
		x.timer.Stop()
		s.client.close()
	}()
	if err := x.open(); err != nil {
		return false, err
	}
	for {
		if err := x.step(); err != nil {
			return !x.stood.IsZero(), err
		}
	}
}

// open finds out what the server is and asks for the first lists.
func (x *session) open() (err error) {
	if x.dialect, err = x.client.discover(x.ctx); err != nil {
		return err
	}
	for _, p := range x.dialect.resources {
		r := x.Source.resources[p.list]
		if r == nil {
			r = &resource{records: records.NewPart(x.cfg.Decoder)}
			x.Source.resources[p.list] = r
		}
		*r = resource{path: p, records: r.records, status: r.status, version: r.version, told: r.told, current: r.current, listed: r.listed}
		x.resources = append(x.resources, r)
		x.list(r)
	}
	return nil
}

// step waits for whatever comes next and handles it. An error ends the session.
func (x *session) step() error {
	x.timer.Reset(time.Until(x.earliest()))
	var resync <-chan struct{} // nil channels are never ready
	if !x.stood.IsZero() {
		resync = x.resync
	}
	select {
	case f := <-x.news:
		return f()
	case <-resync:
		for _, r := range x.resources {
			r.due = time.Now()
		}
	case <-x.timer.C:
		now := time.Now()
		for _, r := range x.resources {
			if r.isDue(now) {
				x.list(r)
			}
			if r.isProbeDue(now) {
				x.ask(r)
			}
		}
		if !x.lasts.IsZero() && !now.Before(x.lasts) {
			x.lasts = time.Time{}
			x.well()
		}
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
	return nil
}

func (r *resource) isDue(now time.Time) bool {
	return !r.listing && !r.due.IsZero() && !now.Before(r.due)
}

func (r *resource) isProbeDue(now time.Time) bool {
	return !r.probing && !r.probe.IsZero() && !now.Before(r.probe)
}

// earliest is when there is something to do that no response starts.
func (x *session) earliest() time.Time {
	first := time.Now().Add(time.Hour)
	if !x.lasts.IsZero() {
		first = x.lasts
	}
	for _, r := range x.resources {
		if !r.listing && !r.due.IsZero() && r.due.Before(first) {
			first = r.due
		}
		if !r.probing && !r.probe.IsZero() && r.probe.Before(first) {
			first = r.probe
		}
	}
	return first
}

// tell hands news to the goroutine of the session. It returns an error when the session is over.
func (x *session) tell(f func() error) error {
	select {
	case x.news <- f:
		return nil
	case <-x.ctx.Done():
		return x.ctx.Err()
	}
}

// list asks for everything. A watch goes on meanwhile, and what it says is remembered.
func (x *session) list(r *resource) {
	r.listing, r.due, r.atLeast = true, time.Time{}, r.version
	r.touched = make(map[string]int64)
	x.calls.Go(func() {
		l, err := x.client.list(x.ctx, &r.path, r.records.NewList)
		_ = x.tell(func() error { // an error: the session is over
			r.listing = false
			if err != nil {
				return x.unlisted(r, err)
			}
			return x.listed(r, l)
		})
	})
}

// unlisted handles a list that failed.
//
// While one record in etcd does not decode, a server of v0.4 answers each list with an error, until the record is mended. The
// watch still works: what is known stays in force, and changes go on from there.
func (x *session) unlisted(r *resource, err error) error {
	r.touched = nil
	err = fmt.Errorf("list %s: %w", r.name, err)
	server := causeOf(err) == Unable // it answers: neither it nor the way there is gone
	if !r.known && (r.version == 0 || !server) {
		return err
	}
	again := r.retry.Begun()
	r.due = time.Now().Add(max(r.retry.Next(), relistAfter))
	switch {
	case server:
		x.warnUnlisted(r, err)
	case again:
		x.trouble(err)
	}
	if r.known {
		return nil
	}
	r.degraded = true
	return x.follow(r)
}

// relistAfter is how soon a list that failed beside a watch is asked for again.
const relistAfter = 5 * time.Second

// listed handles a list that is in.
func (x *session) listed(r *resource, l *listing) error {
	back := l.version < r.atLeast
	if back && r.older+1 < confirmations {
		r.older++
		r.due = time.Now().Add(confirmAfter)
		r.touched = nil
		glog.V(4).Infof("api list of %s @%v is older than @%v, which is known: asking again", r.name, l.version, r.atLeast)
		return nil
	}
	r.older = 0
	heard, touched := int64(r.told), r.touched
	if back { // then nothing of what is known is of the same history
		heard, touched = -1, nil // an object that went back differs since 0
	}
	different, divergent := r.records.Merge(l.list, int64(l.version), touched, heard)
	if r.records.Len() > maxKeys {
		return tooManyKeys(&r.path)
	}
	r.touched = nil
	r.degraded = false
	r.retry.Reset()
	r.due = time.Now().Add(x.nextList(r))
	r.listed = l.at
	x.noteList(r, l, back, different, divergent)
	if back || !r.known {
		r.version, r.told, r.marks = l.version, l.version, nil
	}
	r.version = max(r.version, l.version)
	r.current = l.asked
	x.well()
	if !r.known {
		return x.follow(r)
	}
	if back || divergent.N > 0 { // the watch may be of another history, or deaf
		x.watch(r)
	}
	if back { // what happened to one happened to all
		for _, other := range x.resources {
			if other != r && !other.listing {
				other.due = time.Now()
			}
		}
	}
	if !x.stood.IsZero() { // else the SET will have it
		x.send(x.ctx, false, l.at)
	}
	return nil
}

// nextList is the time to the next list: for the first one of a session it varies by more, since all nodes may have begun
// at one moment.
func (x *session) nextList(r *resource) time.Duration {
	d := x.cfg.SyncPeriod
	if r.paged {
		d *= SyncFactor
	}
	if r.known {
		return backoff.Vary(d)
	}
	return backoff.Spread(d)
}

// follow begins to watch a resource that is known now. Once all are, the session stands.
func (x *session) follow(r *resource) error {
	r.known = true
	x.watch(r)
	for _, other := range x.resources {
		if !other.known {
			return nil
		}
	}
	x.stood = time.Now()
	x.stand()
	if err := x.ctx.Err(); err != nil {
		return err // the SET may not have been sent
	}
	for _, r := range x.resources {
		if r.failed != nil {
			return r.failed
		}
	}
	return nil
}

// watch follows a resource from the version that is known.
func (x *session) watch(r *resource) {
	if r.watching != nil {
		r.watching.stop()
	}
	ctx, stop := context.WithCancel(x.ctx)
	w, from := &watching{stop}, r.version
	r.failed = nil
	r.watching = w
	if r.probe.IsZero() { // a watch that ends often does not put off the question
		r.planProbe()
	}
	x.calls.Go(func() {
		defer stop()
		err := x.client.watch(ctx, &r.path, from, func(ev event) error {
			return x.tell(func() error {
				if r.watching != w {
					return nil
				}
				return x.apply(r, ev)
			})
		})
		_ = x.tell(func() error { // as above
			switch {
			case r.watching != w:
				return nil
			case err == nil:
				x.watch(r) // it ended as it was asked to
				return nil
			}
			err = fmt.Errorf("watch %s: %w", r.name, err)
			if x.stood.IsZero() { // what the lists say counts first, however soon watches end
				r.failed = err
				return nil
			}
			return err
		})
	})
}

// planProbe sets when the server is asked how far it has come. What the watch says does not put that off: the state of a busy cluster
// has to become current, too.
func (r *resource) planProbe() {
	if r.paged {
		r.probe = time.Now().Add(probePeriod)
	}
}

// apply makes one Update of an event.
func (x *session) apply(r *resource, ev event) error {
	x.well()
	v := version(ev.Revision)
	r.told = max(r.told, v)
	x.reached(r)
	if v <= r.version {
		return nil // known, from a list or an earlier watch
	}
	r.version = v
	if ev.bookmark {
		return nil
	}
	narrate(ev)
	if ev.gone {
		r.records.Remove(ev.Key)
	} else {
		r.records.Put(ev.Version)
	}
	if r.touched != nil {
		r.touched[string(ev.Key)] = ev.Revision
	}
	if r.records.Len() > maxKeys {
		return tooManyKeys(&r.path)
	}
	if !x.stood.IsZero() {
		x.send(x.ctx, false, time.Now())
	}
	return nil
}

func narrate(ev event) {
	if v := glog.V(4); v {
		what := "set"
		if ev.gone {
			what = "delete"
		}
		v.Infof("api %s %s @%d", what, registry.Quote(string(ev.Key)), ev.Revision)
	}
}

// ask asks the server how far it has come, beside the watch.
func (x *session) ask(r *resource) {
	r.probing = true
	asked, known := time.Now(), r.version
	x.calls.Go(func() {
		h, err := x.client.newest(x.ctx, &r.path)
		_ = x.tell(func() error { // as above
			r.probing = false
			r.planProbe()
			return x.answered(r, mark{h, asked}, known, err)
		})
	})
}

// answered handles the answer to a question that was asked when a version was known. That there is none says nothing against the watch: it
// is kept, and the server asked again.
func (x *session) answered(r *resource, m mark, known version, err error) error {
	switch {
	case isStatus(err, http.StatusTooManyRequests):
	case err != nil:
		x.trouble(fmt.Errorf("no answer beside the watch: %w", err))
	case m.version < known: // the watch may have told more since
		x.well()
		if !r.listing {
			r.due = time.Now() // a list will show whether it has lost what it had
		}
	default:
		x.well()
		r.marks = slices.DeleteFunc(r.marks, func(o mark) bool { return o.version > m.version }) // of a history that is gone
		if len(r.marks) == maxMarks {
			r.marks = r.marks[:maxMarks-1] // the first ones stay, or a watch that lags behind would never come to one
		}
		r.marks = append(r.marks, m)
		x.reached(r)
	}
	return nil
}

// reached notes that the watch has come to what the server had come to: everything from before the question is known.
func (x *session) reached(r *resource) {
	n := 0
	for n < len(r.marks) && r.marks[n].version <= r.told {
		n++
	}
	if n == 0 {
		return
	}
	if asked := r.marks[n-1].asked; asked.After(r.current) {
		r.current = asked
	}
	r.marks = slices.Delete(r.marks, 0, n)
	x.describe()
}
