package filesource

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/records"
	"kubeproxy/internal/backoff"
	"kubeproxy/internal/keyfiles"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// The defaults of a [Config].
const (
	DefaultScanPeriod = 5 * time.Second
	DefaultSyncPeriod = 30 * time.Second
)

// A Config says which directory to follow. Only Dir must be set; a zero field is its default.
type Config struct {
	Dir        string        // its files are below Dir/registry/services
	ScanPeriod time.Duration // between scans that no notice asks for
	SyncPeriod time.Duration // between scans that read every file, ±20 %
	Decoder    decode.Decoder
}

// A Source follows one directory: it is a [config.Source]. Make it with [New].
type Source struct {
	cfg    Config
	log    *records.OutageLog // and the status
	resync config.Resyncs

	// The rest belongs to the goroutine in Run.
	tree     keyfiles.Tree
	records  *records.State
	created  map[string]int64 // by key: the revision that found the file new
	revision int64            // counts the scans that found a difference
	full     time.Time        // when the next full scan is due
	delays   int              // of the first state
	leftOut  map[string]bool  // keys of files that a log line says are left out

	missing   map[string]time.Time // by key: when its file was not there any more; it may come back
	lookAfter time.Duration        // how long it may take; tests have none

	polls bool // a test wants no notices
}

// secondLook is how long a file has to be missing before it counts as deleted. An editor that writes a file moves or removes the old one
// first, and a port must not close for that.
const secondLook = 200 * time.Millisecond

// The causes of an outage, as config.Status and the metrics name them.
const (
	missing = iota
	unreadable
	tooLarge
)

var causes = []string{missing: "missing", unreadable: "unreadable", tooLarge: "too_large"}

// Causes lists the short words for why a directory cannot be read.
func Causes() []string { return causes }

// New checks cfg and returns a source that does nothing yet. A directory that is not there is no error, for it may come; something else
// in its place is one.
func New(cfg Config) (*Source, error) {
	if cfg.Dir == "" {
		return nil, errors.New("the directory has no name")
	}
	if cfg.ScanPeriod < 0 || cfg.SyncPeriod < 0 {
		return nil, fmt.Errorf("negative period %v", min(cfg.ScanPeriod, cfg.SyncPeriod))
	}
	cfg.ScanPeriod, cfg.SyncPeriod = cmp.Or(cfg.ScanPeriod, DefaultScanPeriod), cmp.Or(cfg.SyncPeriod, DefaultSyncPeriod)
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("directory %s: %w", registry.Quote(cfg.Dir), err)
	}
	cfg.Dir = dir
	s := &Source{
		cfg:     cfg,
		log:     records.NewOutageLog(0, causes...),
		resync:  config.NewResyncs(),
		tree:    keyfiles.Tree{Dir: dir},
		records: records.New(cfg.Decoder),
		created: make(map[string]int64),
		leftOut: make(map[string]bool),

		missing:   make(map[string]time.Time),
		lookAfter: secondLook,
	}
	if err := s.tree.Check(); errors.Is(err, syscall.ENOTDIR) {
		return nil, err
	}
	return s, nil
}

// Name implements [config.Source].
func (s *Source) Name() string { return "files" }

// Status implements [config.Source].
func (s *Source) Status() config.Status { return s.log.Status() }

// Resync asks for a scan that reads every file, now. It does not wait for it.
func (s *Source) Resync() { s.resync.Ask() }

// Run keeps out informed of the directory until ctx ends, and then returns nil. It may run once at a time.
func (s *Source) Run(ctx context.Context, out chan<- registry.Update) error {
	glog.Infof("reading services from directory %s", registry.Quote(s.cfg.Dir))
	notices := newNotices(s.cfg.Dir, s.polls)
	defer notices.close()
	for ctx.Err() == nil {
		began := time.Now()
		wait := s.scan(ctx, out, notices)
		// A directory that is written to all the time gets a fifth of a processor, and no more.
		rest := 4 * time.Since(began)
		s.wait(ctx, notices, time.Now().Add(min(rest, s.cfg.ScanPeriod)), max(rest, wait))
	}
	s.log.Stopped()
	return nil
}

// wait returns when the next scan is due: after a notice, which it gives time to be followed by others, but not before rest; or after
// all of the time.
func (s *Source) wait(ctx context.Context, n *notices, rest time.Time, all time.Duration) {
	timer := time.NewTimer(all)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-s.resync:
		s.full = time.Time{}
	case <-n.heard:
		n.settle(ctx, rest)
	}
}

// soon is the pause before a scan that looks again at what changed while it was read.
const soon = 50 * time.Millisecond

// maxDelays is how often the first state waits for files that are being written. One that always is does not hold up the others.
const maxDelays = 20

// scan makes one step, and returns for how long to wait before the next one.
func (s *Source) scan(ctx context.Context, out chan<- registry.Update, n *notices) time.Duration {
	began := time.Now()
	all := !began.Before(s.full)
	found, err := s.read(all, n)
	if err != nil {
		s.failed(err)
		return s.cfg.ScanPeriod
	}
	if found.Torn { // it is no state of the directory, and no full scan
		return min(soon, s.cfg.ScanPeriod)
	}
	different := s.apply(found, began)
	if all {
		s.full = began.Add(backoff.Vary(s.cfg.SyncPeriod))
	}
	first := !s.log.Status().Ready
	if first && found.Moving && s.delays < maxDelays { // the first state has to be complete
		s.delays++
		return soon
	}
	s.count(all, began)
	away, loud := s.log.Reads()
	if all || different || first {
		u := s.records.Update(all || first, s.revision, began)
		select {
		case out <- u:
		case <-ctx.Done():
			return 0
		}
		s.log.Edit(func(st *config.Status) {
			st.Ready, st.Revision = true, s.revision
			s.records.Describe(st, began)
		})
	}
	s.log.Edit(func(st *config.Status) { st.Current = began })
	s.tell(first, away, loud)
	s.tellLeftOut(found.LeftOut)
	wait := s.cfg.ScanPeriod
	if found.Moving {
		wait = min(soon, wait)
	}
	for _, since := range s.missing {
		wait = min(wait, time.Until(since.Add(s.lookAfter)))
	}
	return max(wait, 0)
}

// read scans the directory, and has the notices follow it. A file that cannot be read is an error of all.
func (s *Source) read(all bool, n *notices) (keyfiles.Scan, error) {
	found, err := s.tree.Scan(all)
	if err == nil && len(found.Unread) > 0 {
		u := found.Unread[0]
		err = fmt.Errorf("directory %s: %s: %w", registry.Quote(s.cfg.Dir), registry.Quote(u.Key), u.Err)
	}
	if n.follow(found.Dirs) {
		n.expect() // what happened between the scan and the watching is still unknown
	}
	return found, err
}

// count notes a scan that succeeded.
func (s *Source) count(all bool, began time.Time) {
	s.log.Edit(func(st *config.Status) {
		switch {
		case !st.Connected:
			st.Sessions++
		case all:
			st.Resyncs++
		}
		if all {
			st.Listed = began
		}
	})
}

// apply applies what a scan found, and reports whether it changed anything. A file that is not there any more counts as deleted if a scan
// after secondLook does not find it either. What a swapped link has left behind is deleted in the same step as all of the swap.
func (s *Source) apply(found keyfiles.Scan, at time.Time) bool {
	for _, key := range found.Gone {
		s.missing[key] = at
	}
	for _, f := range found.Changed {
		delete(s.missing, f.Key)
	}
	for _, key := range found.Writing {
		if _, ok := s.missing[key]; ok {
			s.missing[key] = at // it is back. If it is gone again, no scan will say so: the tree has not read it since
		}
	}
	gone := found.Swapped
	for key, since := range s.missing {
		if at.Sub(since) >= s.lookAfter {
			gone = append(gone, key)
			delete(s.missing, key)
		}
	}
	if len(found.Changed)+len(gone) == 0 && s.revision > 0 {
		return false
	}
	s.revision++
	for _, key := range gone {
		s.records.Remove([]byte(key))
		delete(s.created, key)
	}
	for _, f := range found.Changed {
		if s.created[f.Key] == 0 {
			s.created[f.Key] = s.revision
		}
		s.records.Put(records.Version{Key: []byte(f.Key), Value: f.Value, Err: f.Err, Created: s.created[f.Key], Revision: s.revision})
	}
	return true
}

// failed notes that the directory cannot be read now.
func (s *Source) failed(err error) {
	cause, advice := unreadable, ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		cause, advice = missing, " (create it, or mount the volume that it should be)"
	case errors.Is(err, keyfiles.ErrNoRegistry):
		cause = missing
	case errors.Is(err, keyfiles.ErrTooLarge):
		cause = tooLarge
	}
	if s.log.Status().Connected {
		s.log.End(cause)
	}
	s.log.Failed(cause, "services cannot be read", config.OneLine(err.Error())+advice)
}

// tell logs the first state, and the end of an outage.
func (s *Source) tell(first bool, away time.Duration, loud bool) {
	st := s.log.Status()
	switch {
	case first:
		s.log.ReportRead(fmt.Sprintf("directory %s read", registry.Quote(s.cfg.Dir)), "files")
	case away > 0:
		s.log.Recovered(fmt.Sprintf("directory %s can be read again after %v: %d services, %d endpoints",
			registry.Quote(s.cfg.Dir), away.Round(time.Millisecond), st.Services, st.Endpoints), loud)
	}
}

// maxLeftOut bounds how many files have a line that says that they are left out.
const maxLeftOut = 20

// tellLeftOut logs, once, which files are no records by their names. Temporary ones are rarely there when a scan reads everything.
func (s *Source) tellLeftOut(keys []string) {
	for _, key := range keys {
		if len(s.leftOut) < maxLeftOut && !s.leftOut[key] {
			s.leftOut[key] = true
			glog.Infof("directory %s: %s is left out: its name is that of a hidden, temporary or backup file", registry.Quote(s.cfg.Dir), registry.Quote(key))
		}
	}
}
