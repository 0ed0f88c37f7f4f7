package etcdv2source

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/records"
	"kubeproxy/config/remote"
	"kubeproxy/internal/backoff"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// A Source follows one etcd 2: it is a [config.Source]. Make it with [New].
type Source struct {
	cfg    dialer
	log    *records.OutageLog // and the status
	resync config.Resyncs
	pieces chan piece // from sessions

	// The rest belongs to the goroutine in Run.
	out     chan<- registry.Update
	records *records.State
	lives   map[string]life // by key
	applied int64           // the index that records are of: the last Update's
	heard   int64           // nothing happened below the prefix after applied and up to this index
	cluster string          // the id of the etcd that they are of; empty: it sends none, as etcd 0.4
	member  int             // that the next session asks

	current *session         // its watch is followed; nil: there is none
	next    *session         // its list is awaited; it takes the place of current
	touched map[string]int64 // while a list is awaited: the index of the last event of a key
	attempt *time.Timer
	sync    *time.Timer
	retry   backoff.Pauses // between attempts, while there is no current; reset by a session that lasted
	again   backoff.Pauses // between resyncs that fail
	probe   probe

	resyncWarnings *lograte.Limiter[struct{}]
	setbacks       *lograte.Limiter[int64]
}

// DefaultProbePeriod is how often etcd is asked for its index. An etcd 2 writes something to its disk for each answer.
const DefaultProbePeriod = 2 * time.Second

// New checks cfg and returns a source that does nothing yet. The page size means nothing here.
func New(cfg etcdconfig.Config) (*Source, error) {
	if cfg.ProbePeriod == 0 {
		cfg.ProbePeriod = DefaultProbePeriod
	}
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	return &Source{
		cfg:     dialer{cfg, etcdconfig.NewNames(nil)},
		log:     records.NewOutageLog(maxBackoff, Causes()...),
		resync:  config.NewResyncs(),
		pieces:  make(chan piece),
		records: records.New(cfg.Decoder),
		lives:   make(map[string]life),
		member:  rand.IntN(len(cfg.Endpoints)), // or a fleet would crowd on the first one

		resyncWarnings: lograte.Lasting[struct{}](1),
		setbacks:       lograte.Lasting[int64](5),
	}, nil
}

// Name implements [config.Source].
func (s *Source) Name() string { return "etcd" }

// Status implements [config.Source].
func (s *Source) Status() config.Status { return s.log.Status() }

// Resync asks for a full list now, as the sync period will sooner or later. It does not wait for it.
func (s *Source) Resync() { s.resync.Ask() }

// Run keeps out informed of the registry until ctx ends, and then returns nil. It never gives up: while
// etcd cannot be reached, nothing is sent. It may run once at a time.
func (s *Source) Run(ctx context.Context, out chan<- registry.Update) error {
	s.out = out
	glog.Infof("watching etcd at %v, by its v2 API", s.cfg.Endpoints)
	s.attempt, s.sync = time.NewTimer(0), time.NewTimer(s.cfg.SyncPeriod)
	s.probe.init(s.cfg.ProbePeriod)
	defer func() {
		s.probe.stop()
		s.next.end()
		s.current.end()
		s.next, s.current = nil, nil
		s.attempt.Stop()
		s.sync.Stop()
		s.cfg.names.Close()
		s.log.Stopped()
	}()
	for ctx.Err() == nil {
		var resync <-chan struct{} // nil channels are never ready
		var due <-chan time.Time
		if s.current != nil && s.next == nil {
			resync, due = s.resync, s.sync.C
		}
		select {
		case <-ctx.Done():
		case p := <-s.pieces:
			s.take(ctx, p)
		case <-s.attempt.C:
			if s.next == nil {
				s.open(ctx)
			}
		case <-resync:
			s.open(ctx)
		case <-due:
			s.open(ctx)
		case <-s.probe.ticker.C:
			s.tick(ctx)
		case a := <-s.probe.answers:
			s.probed(ctx, a)
		}
	}
	return nil
}

// open begins a session with the next member.
func (s *Source) open(ctx context.Context) {
	s.member = (s.member + 1) % len(s.cfg.Endpoints)
	s.touched = make(map[string]int64)
	s.next = s.begin(ctx, s.cfg.Endpoints[s.member])
}

// take handles what a session hands over.
func (s *Source) take(ctx context.Context, p piece) {
	switch {
	case p.err != nil:
		s.over(p)
	case p.listing != nil:
		if s.current == nil && p.listing.atLeast <= p.listing.index && p.listing.index < s.applied {
			// The watch has told of later events, and broke while this list was read. A list that is asked for now is as new as
			// they are, or else etcd went back.
			s.next.end()
			s.open(ctx)
			return
		}
		beside := s.current != nil
		if p.session == s.next {
			s.current.end()
			s.current = p.session
			s.current.stood = p.at
		} else { // the watch had to list again: that is newer than what the next session is listing
			s.next.end()
			s.touched = nil
		}
		s.next = nil
		s.use(ctx, *p.listing, beside)
		s.touched = nil
	case p.session != s.current:
	case p.event != nil:
		s.well()
		s.apply(ctx, p.event, p.at)
	default:
		s.well()
	}
}

// over ends a session that broke. What is known stays in force.
func (s *Source) over(p piece) {
	p.session.end()
	if p.session == s.next {
		s.next, s.touched = nil, nil
		if s.current != nil {
			s.resyncFailed(p.err)
			return
		}
	} else {
		s.current = nil
		if s.log.End(int(causeOf(p.err))) { // else something breaks it again and again
			s.retry.Reset()
		}
	}
	s.trouble(p.err)
	s.attempt.Reset(s.retry.Next())
}

// abandon gives up the standing watch.
func (s *Source) abandon(err error) {
	s.over(piece{session: s.current, err: err})
}

// use makes the state equal to a list. It is the truth, empty or not (D9), whatever was known before; except that of keys that the
// watch has spoken of meanwhile the newer one counts.
func (s *Source) use(ctx context.Context, l listing, beside bool) {
	known := s.applied
	if beside {
		known = s.heard
	}
	first, from := !s.log.Status().Ready, s.applied
	if s.another(l) || l.index < l.atLeast { // it went back, and so do we
		s.touched = nil // what the watch has told is over, too, however late it came
		s.applied, s.heard = l.index, l.index
	}
	list := s.read(l)
	different, lost := s.records.Merge(list, l.index, s.touched, known)
	setback := !first && s.setback(l, lost.N, beside)
	s.cluster = l.cluster
	s.applied = max(s.applied, l.index)
	s.heard = max(s.heard, s.applied)
	s.again.Reset()
	if beside {
		s.sync.Reset(backoff.Vary(s.cfg.SyncPeriod))
	} else { // nodes whose sessions broke at one moment must not list at one moment again
		s.sync.Reset(backoff.Spread(s.cfg.SyncPeriod))
	}
	s.log.Edit(func(st *config.Status) {
		st.Listed, st.Cluster = l.at, l.cluster
		switch {
		case !beside:
			st.Sessions++
		case setback:
			st.Resyncs++
		default:
			st.Resyncs++
			st.Divergences += uint64(lost.N)
		}
	})
	if beside && !setback && lost.N > 0 {
		glog.Warningf("resync at index %d mended %d keys that the watch had not told of: %s", l.index, lost.N, lost)
	}
	away, loud := s.log.Reads()
	s.send(ctx, true, l.at)
	if !s.cfg.Weak {
		s.upToDate(l.asked)
	}
	s.tell(first, away, loud || setback, fmt.Sprintf("read at index %d, was %d; %s", l.index, from, different.Differ()))
}

// read decodes a list, and takes over the lives of its keys.
func (s *Source) read(l listing) records.List {
	list := s.records.NewList(len(l.nodes))
	lives := make(map[string]life, len(l.nodes))
	for key, index := range s.touched {
		if life, ok := s.lives[key]; ok && index > l.index {
			lives[key] = life
		}
	}
	const page = 500
	for nodes := l.nodes; len(nodes) > 0; nodes = nodes[min(page, len(nodes)):] {
		versions := make([]records.Version, 0, page)
		for _, n := range nodes[:min(page, len(nodes))] {
			life := s.lives[n.Key].next(n, false)
			versions = append(versions, life.version(n))
			n.Value = "" // the list keeps what is new of it: the text of everything is not held twice
			if s.touched[n.Key] <= l.index {
				lives[n.Key] = life
			}
		}
		list.Add(versions)
	}
	list.Wait()
	s.lives = lives
	return list
}

// tell logs the first state, and the end of an outage.
func (s *Source) tell(first bool, away time.Duration, loud bool, news string) {
	switch {
	case first:
		s.log.ReportRead(fmt.Sprintf("etcd read at index %d", s.log.Status().Revision), "keys")
	case away > 0:
		s.log.Recovered(fmt.Sprintf("etcd at %v answers again after %v: %s", s.cfg.Endpoints, away.Round(time.Millisecond), news), loud)
	}
}

// setback reports whether a list is not of the etcd that was followed before, or of one that has lost what it had, and says so in the
// log. Beside a watch that stands only the index tells; otherwise keys that are not what they were tell, too.
func (s *Source) setback(l listing, lost int, beside bool) bool {
	var what string
	switch {
	case s.another(l):
		what = fmt.Sprintf("etcd is another one: cluster %s in place of %s", registry.Quote(l.cluster), registry.Quote(s.cluster))
	case l.index < l.atLeast:
		what = fmt.Sprintf("etcd went back from index %d to %d: restored or wiped?", l.atLeast, l.index)
	case !beside && lost > 0:
		what = fmt.Sprintf("etcd has lost what it had: %d keys are not what they were at index %d", lost, s.applied)
	default:
		return false
	}
	s.log.Edit(func(st *config.Status) { st.Setbacks++ })
	if note, ok := s.setbacks.Allow(l.index); ok {
		glog.Warning(what + "; what it holds now takes effect" + note)
	}
	return true
}

// another reports whether a list is of another etcd than what is known. An etcd that sends no id is not known to be another one.
func (s *Source) another(l listing) bool {
	return l.cluster != "" && s.cluster != "" && l.cluster != s.cluster
}

// A life is what is known of the life of a key: the createdIndex of its value, and that with which the life began.
type life struct{ created, first int64 }

// next is the life of a key after a value was written to it; the zero life is that of a key that was not there. A value that was set
// over another has a createdIndex of its own; a caller that knows of this says that the life goes on.
func (l life) next(n *node, goesOn bool) life {
	if l == (life{}) || l.created != n.CreatedIndex && !goesOn {
		l.first = n.CreatedIndex
	}
	l.created = n.CreatedIndex
	return l
}

func (l life) version(n *node) records.Version {
	return records.Version{Key: []byte(n.Key), Value: []byte(n.Value), Created: l.first, Revision: n.ModifiedIndex}
}

// apply makes one Update of one event.
func (s *Source) apply(ctx context.Context, ev *response, at time.Time) {
	n := ev.Node
	if n.ModifiedIndex <= s.applied {
		return // a list knew it already
	}
	s.heard = max(s.heard, n.ModifiedIndex)
	if n.Dir || hidden(n.Key) || !strings.HasPrefix(n.Key, registry.Prefix) {
		return
	}
	if v := glog.V(4); v {
		v.Infof("etcd %s %s @%d", ev.Action, registry.Quote(n.Key), n.ModifiedIndex)
	}
	switch ev.Action {
	case "delete", "expire", "compareAndDelete": // D11
		s.records.Remove([]byte(n.Key))
		delete(s.lives, n.Key)
	default: // D10: set, create, update, compareAndSwap
		life := s.lives[n.Key].next(n, ev.PrevNode != nil)
		s.lives[n.Key] = life
		s.records.Put(life.version(n))
	}
	if s.touched != nil {
		s.touched[n.Key] = n.ModifiedIndex
	}
	s.applied = n.ModifiedIndex
	s.send(ctx, false, at)
	if s.records.Len() > maxKeys {
		s.abandon(remote.Because(unable, fmt.Errorf("more than %d keys below %s: too many for a proxy", maxKeys, registry.Prefix)))
	}
}

// send hands one Update on, with all changes since the last. A SET carries everything instead.
func (s *Source) send(ctx context.Context, set bool, at time.Time) {
	s.log.Send(ctx, s.out, s.records, set, s.applied, at)
}

// upToDate notes that everything written by then has been sent.
func (s *Source) upToDate(then time.Time) {
	s.log.Edit(func(st *config.Status) {
		if then.After(st.Current) {
			st.Current = then
		}
	})
}

// trouble notes that etcd cannot be reached or used now.
func (s *Source) trouble(err error) {
	cause, reason := causeOf(err), config.OneLine(err.Error())
	if e, ok := errors.AsType[*apiError](err); ok && e.Code == codeUnauthorized && s.cfg.Username == "" {
		reason += " (no user is set)"
	}
	s.log.Failed(int(cause), fmt.Sprintf(causes[cause].line, s.cfg.Endpoints), reason)
}

// well notes that etcd answers.
func (s *Source) well() {
	if away, loud := s.log.Reads(); away > 0 {
		s.log.Recovered(fmt.Sprintf("etcd at %v answers again after %v: the watch has outlived it, at index %d",
			s.cfg.Endpoints, away.Round(time.Millisecond), s.heard), loud)
	}
}

// resyncFailed puts the resync off a little. The watch stands, so what is served is still true.
func (s *Source) resyncFailed(err error) {
	again := s.again.Begun()
	s.sync.Reset(s.again.Next())
	if !again {
		return
	}
	if note, ok := s.resyncWarnings.Allow(struct{}{}); ok {
		glog.Warningf("no resync with etcd at %v: %s; the watch goes on%s", s.cfg.Endpoints, config.OneLine(err.Error()), note)
	}
}
