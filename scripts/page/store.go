//go:build js

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/records"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// A store is the registry: what an etcd or a directory is elsewhere. It can be written to while the nodes cannot reach it.
type store struct {
	mu       sync.Mutex // guards the fields below
	revision int64
	keys     map[string]stored
	away     bool
	changed  chan struct{} // closed at the next change of anything
}

type stored struct {
	value             string
	created, modified int64
}

func newStore() *store {
	return &store{keys: make(map[string]stored), changed: make(chan struct{})}
}

// write makes one transaction of all records.
func (s *store) write(all []record) error {
	for _, r := range all {
		if !strings.HasPrefix(r.Key, registry.Prefix) || len(r.Key) == len(registry.Prefix) {
			return fmt.Errorf("key %s: the nodes read keys below %s only", registry.Quote(r.Key), registry.Prefix)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.revision++
	for _, r := range all {
		if r.Value == nil {
			delete(s.keys, r.Key)
			continue
		}
		created := s.keys[r.Key].created
		if created == 0 {
			created = s.revision
		}
		s.keys[r.Key] = stored{value: *r.Value, created: created, modified: s.revision}
	}
	s.tellLocked()
	return nil
}

func (s *store) set(state string) error {
	if state != "up" && state != "away" {
		return fmt.Errorf("%q is no state of the registry: it is up or away", state)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away = state == "away"
	s.tellLocked()
	return nil
}

func (s *store) tellLocked() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// errAway is what a node hears of a registry that it cannot reach.
var errAway = errors.New("the registry does not answer")

// read returns everything at one revision, and a channel that is closed when that is out of date.
func (s *store) read() (all []records.Version, revision int64, changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.away {
		return nil, s.revision, s.changed, errAway
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		v := s.keys[key]
		all = append(all, records.Version{Key: []byte(key), Value: []byte(v.value), Created: v.created, Revision: v.modified})
	}
	return all, s.revision, s.changed, nil
}

// A source keeps one node informed of the store: it is a [config.Source], as those of etcd and of directories are. It lists everything at each change.
type source struct {
	store   *store
	log     *records.OutageLog
	records *records.State
	resync  config.Resyncs
}

func newSource(s *store) *source {
	return &source{store: s, log: records.NewOutageLog(0, "unreachable"), records: records.New(decode.Decoder{}), resync: config.NewResyncs()}
}

// Name implements [config.Source].
func (*source) Name() string { return "registry" }

// Resync implements [config.Source].
func (s *source) Resync() { s.resync.Ask() }

// Status implements [config.Source].
func (s *source) Status() config.Status { return s.log.Status() }

// The pauses between attempts to reach a store that is away. They have no random part, as those of real sources do: the page can go
// back in time, and then everything has to happen again as it did.
const firstPause, longestPause = 500 * time.Millisecond, 4 * time.Second

// Run implements [config.Source].
func (s *source) Run(ctx context.Context, out chan<- registry.Update) error {
	glog.Infof("reading services from the registry of this page")
	pause := firstPause
	for ctx.Err() == nil {
		all, revision, changed, err := s.store.read()
		if err != nil {
			if s.log.Status().Connected {
				s.log.End(0)
			}
			s.log.Failed(0, "services cannot be read", err.Error())
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			pause = min(2*pause, longestPause)
			continue
		}
		pause = firstPause
		s.apply(ctx, out, all, revision)
		select {
		case <-changed:
		case <-s.resync:
		case <-ctx.Done():
		}
	}
	s.log.Stopped()
	return nil
}

// apply makes the state of the node that of the store.
func (s *source) apply(ctx context.Context, out chan<- registry.Update, all []records.Version, revision int64) {
	list := s.records.NewList(len(all))
	list.Add(all)
	list.Wait()
	s.records.Merge(list, revision, nil, 0)
	first, now := !s.log.Status().Ready, time.Now()
	away, loud := s.log.Reads()
	s.log.Send(ctx, out, s.records, first, revision, now)
	switch {
	case first:
		s.log.ReportRead(fmt.Sprintf("registry read at revision %d", revision), "keys")
	case away > 0:
		s.log.Recovered(fmt.Sprintf("the registry can be read again after %v", away.Round(time.Millisecond)), loud)
	}
}
