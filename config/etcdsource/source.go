package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// A Source follows one etcd: it is a [config.Source]. Make it with [New].
type Source struct {
	cfg    dialer
	resync config.Resyncs
	log    *records.OutageLog // and the status

	// The rest belongs to the goroutine in Run.
	out     chan<- registry.Update
	records *records.State
	applied int64  // the revision that records are of: the last Update's
	cluster uint64 // the etcd that they are of; 0 before the first list
	gap     *gap   // what first lists have found since the last Update; nil: none came
	lists   *reader
	page    int64   // keys in a page of the next list
	probes  *reader // apart from lists: one that hangs must not hold up the question why

	fragments bool // the next watch asks for them, since the last one was sent too large a response

	resyncWarnings *lograte.Limiter[struct{}] // lines about resyncs that fail
	setbacks       *lograte.Limiter[int64]    // lines about setbacks, by their revision
	refusals       *lograte.Limiter[string]   // lines about keys that cannot be followed
}

// A gap is how first lists differ from what is in force. It outlives a session that ends before its Update.
type gap struct {
	first     bool  // nothing was known
	from      int64 // the revision that is in force
	different records.Tally
	loud      bool // a line about a setback was written
}

// New checks cfg and returns a source that does nothing yet.
func New(cfg Config) (*Source, error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return nil, err
	}
	cfg.Decoder.HolderKeys, cfg.Decoder.Patroni = cfg.HolderKeys, cfg.Patroni
	s := &Source{
		cfg:     dialer{cfg, etcdconfig.NewNames(nil)},
		resync:  config.NewResyncs(),
		records: records.New(cfg.Decoder),

		log: records.NewOutageLog(maxBackoff, causeNames()...),

		resyncWarnings: lograte.Lasting[struct{}](1),
		setbacks:       lograte.Lasting[int64](5),
		refusals:       lograte.Lasting[string](5),
	}
	s.page = s.cfg.pageSize()
	s.lists, s.probes = newReader(&s.cfg), newReader(&s.cfg)
	return s, nil
}

// Name implements [config.Source].
func (s *Source) Name() string { return "etcd" }

// Resync asks for a full list now, as the sync period will sooner or later. It does not wait for it.
// While there is no session nothing is lost: the next begins with a list.
func (s *Source) Resync() { s.resync.Ask() }

// Run keeps out informed of the registry until ctx ends, and then returns nil. It never gives up: while
// etcd cannot be reached, nothing is sent. It may run once at a time.
func (s *Source) Run(ctx context.Context, out chan<- registry.Update) error {
	s.out = out
	defer s.cfg.names.Close()
	defer s.lists.close()
	defer s.probes.close()
	glog.Infof("watching etcd at %v", s.cfg.Endpoints)
	if s.cfg.TLS != nil && !etcdconfig.IsHTTPS(s.cfg.Endpoints[0]) {
		glog.Warningf("the URLs of etcd are http: certificates are neither shown nor checked")
	}
	for wait := (backoff.Pauses{}); ; backoff.Sleep(ctx, wait.Next()) {
		stood, err := s.attend(ctx)
		if ctx.Err() != nil {
			break
		}
		s.fragments = errors.Is(err, errBacklog) || s.fragments && !stood
		if stood && s.log.End(int(causeOf(err))) { // else something breaks it again and again
			wait.Reset()
		}
		if errors.Is(err, errOldToken) { // a token is renewed without a word
			glog.V(4).Infof("watching etcd anew: %v", err)
			continue
		}
		s.trouble(err)
		backoff.Sleep(ctx, spread(err))
	}
	s.log.Stopped()
	return nil
}

// spread is for how long a source that was far behind waits before it lists, beside the usual pause: a whole fleet may have been stopped.
func spread(err error) time.Duration {
	if causeOf(err) != Behind {
		return 0
	}
	return rand.N(maxSpread)
}

// maxSpread is the time over which fifty lists of 1,000 services take a third of one of etcd's processors.
const maxSpread = 2 * time.Second

// send hands one Update on, with all changes since the last. A SET carries everything instead.
func (s *Source) send(ctx context.Context, set bool, at time.Time) {
	s.log.Send(ctx, s.out, s.records, set, s.applied, at)
}

// wentBack is the end of a session whose etcd has lost what it had.
func wentBack(from, to int64) error {
	return remote.Because(WentBack, fmt.Errorf("it went back from revision %d to %d: restored or wiped?", from, to))
}
