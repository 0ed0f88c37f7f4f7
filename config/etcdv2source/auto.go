package etcdv2source

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/registry"
)

const (
	versionTimeout    = 300 * time.Millisecond // without an answer, etcd 3 is assumed, and the asking goes on
	askInterval       = 2 * time.Second        // rounds of questions
	ignoreSilentAfter = 10 * time.Second       // then members that do not answer count no more
)

// Auto finds out which etcd it is that the configuration names, and follows it with the source that can. It is a [config.Source].
//
// GET /version says which one it is. An etcd 3 is followed by its own API, also if it serves the v2 API as well. Nearly always it is an
// etcd 3, so the questions delay it little: its source begins as soon as one member says that it is one, or after [versionTimeout] without
// an answer. Only a source that has read nothing yet is stopped in favour of the other.
//
// An etcd 3.0 to 3.5 may serve an old registry by its v2 API only, which its v3 API does not show. When the first v3 list is empty, one
// more question finds that out, and the log says which flag reads the old registry.
type Auto struct {
	members     []string
	version     func(ctx context.Context, member string) (string, error)
	hasRegistry func(ctx context.Context, member string) (bool, error) // in its v2 store
	v2, v3      config.Source

	mu     sync.Mutex
	chosen config.Source // the one that runs, or ran last
}

// NewAuto returns a source for the members of cfg, which is complete. It runs one of the two others at a time.
func NewAuto(cfg etcdconfig.Config, v2, v3 config.Source) *Auto {
	version := func(ctx context.Context, member string) (string, error) {
		return Version(ctx, cfg, member)
	}
	hasRegistry := func(ctx context.Context, member string) (bool, error) {
		return HasRegistry(ctx, cfg, member)
	}
	return &Auto{members: cfg.Endpoints, version: version, hasRegistry: hasRegistry, v2: v2, v3: v3, chosen: v3}
}

func (s *Auto) now() config.Source {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.chosen
}

// Name implements [config.Source]. It is the name of both.
func (s *Auto) Name() string { return s.v3.Name() }

// Resync implements [config.Source].
func (s *Auto) Resync() { s.now().Resync() }

// Status implements [config.Source].
func (s *Auto) Status() config.Status { return s.now().Status() }

// Run implements [config.Source].
func (s *Auto) Run(ctx context.Context, out chan<- registry.Update) error {
	asking, stop := context.WithCancel(ctx)
	defer stop()
	verdicts := make(chan Verdict)
	var questions sync.WaitGroup
	defer questions.Wait()
	defer stop()
	questions.Go(func() { s.find(asking, verdicts) })

	timer := time.NewTimer(versionTimeout)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return nil
	case v := <-verdicts:
		v.log()
		if v.Major != 2 {
			questions.Go(func() { s.warnOfOldRegistry(asking, v.Member) })
		}
		return s.run(ctx, v.source(s), out)
	case <-timer.C:
		glog.Infof("following etcd 3: no member of %v has told its version within %v (-etcd_version=auto); the asking goes on", s.members, versionTimeout)
	}
	third, end := context.WithCancel(ctx)
	defer end()
	done := make(chan error, 1)
	go func() { done <- s.run(third, s.v3, out) }()
	for {
		select {
		case err := <-done:
			return err
		case v := <-verdicts:
			if v.Major != 2 || s.v3.Status().Ready {
				verdicts = nil // it is what runs already
				if v.Major == 2 {
					glog.Infof("following etcd 3, whose records have been read, although %s says that it is version %s (-etcd_version=auto)", v.Member, v.Version)
				} else {
					v.log()
				}
				questions.Go(func() { s.warnOfOldRegistry(asking, v.Member) })
				continue
			}
			end()
			if err := <-done; err != nil {
				return err
			}
			v.log()
			return s.run(ctx, s.v2, out)
		}
	}
}

func (s *Auto) run(ctx context.Context, source config.Source, out chan<- registry.Update) error {
	s.mu.Lock()
	s.chosen = source
	s.mu.Unlock()
	return source.Run(ctx, out)
}

// A Verdict is which etcd it is, and a member with its version that shows it.
type Verdict struct {
	Major   int // 2 or 3
	Version string
	Member  string
}

// String says what was found, and why.
func (v Verdict) String() string {
	return fmt.Sprintf("etcd %d: %s says that it is version %s (-etcd_version=auto)", v.Major, v.Member, v.Version)
}

func (v Verdict) source(s *Auto) config.Source {
	if v.Major == 2 {
		return s.v2
	}
	return s.v3
}

func (v Verdict) log() { glog.Infof("following %v", v) }

// find asks the members, round after round, until it knows.
func (s *Auto) find(ctx context.Context, out chan<- Verdict) {
	began := time.Now()
	for {
		round, cancel := context.WithTimeout(ctx, askInterval)
		v, ok := s.ask(round, time.Since(began) > ignoreSilentAfter)
		cancel()
		if ok {
			select {
			case out <- v:
			case <-ctx.Done():
			}
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(askInterval):
		}
	}
}

// warnOfOldRegistry waits for the first v3 list. If that is empty, it asks the member, once, whether the registry is in its v2 store.
func (s *Auto) warnOfOldRegistry(ctx context.Context, member string) {
	st := s.v3.Status()
	for ; !st.Ready; st = s.v3.Status() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(askInterval):
		}
	}
	if st.Services+st.Endpoints+st.Rejected > 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, askInterval)
	defer cancel()
	if found, err := s.hasRegistry(ctx, member); err == nil && found { // only a hint depends on the answer, so an error is as good as no
		glog.Warning(oldRegistry(member))
	}
}

// oldRegistry says that a member without records in its v3 store has some in its v2 store.
func oldRegistry(member string) string {
	return fmt.Sprintf("etcd at %s has no records in its v3 store, but has %s in its v2 store: use -etcd_version=2, or move the records with etcdctl migrate",
		member, registry.Prefix)
}

// FindVersion asks the members of cfg, which is complete, once which etcd they are; ok is false if they do not say.
func FindVersion(ctx context.Context, cfg etcdconfig.Config) (v Verdict, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, askInterval)
	defer cancel()
	return NewAuto(cfg, nil, nil).ask(ctx, true)
}

// OldRegistry returns what there is to say if an etcd 3, without records in its v3 store, has some in its v2 store. Otherwise it is "".
func (v Verdict) OldRegistry(ctx context.Context, cfg etcdconfig.Config) string {
	ctx, cancel := context.WithTimeout(ctx, askInterval)
	defer cancel()
	if found, err := HasRegistry(ctx, cfg, v.Member); err != nil || !found {
		return ""
	}
	return oldRegistry(v.Member)
}

// ask asks all members. One that is an etcd 3 decides: it cannot be in a cluster that etcd 2 leads, or only while that is being
// upgraded. For etcd 2 a majority has to say so, and later all that answer: one old machine in the list proves nothing.
func (s *Auto) ask(ctx context.Context, all bool) (Verdict, bool) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers := make(chan Verdict)
	for _, member := range s.members {
		go func() {
			version, err := s.version(ctx, member)
			switch {
			case err != nil:
				answers <- Verdict{}
			case Major(version) >= 3:
				answers <- Verdict{3, version, member}
			default:
				answers <- Verdict{2, version, member}
			}
		}()
	}
	var old []Verdict
	var newer Verdict
	for range s.members {
		switch v := <-answers; v.Major {
		case 3:
			newer = v
			cancel() // the others need not answer
		case 2:
			old = append(old, v)
		}
	}
	switch {
	case newer.Major == 3:
		return newer, true
	case len(old) > len(s.members)/2, all && len(old) > 0:
		return slices.MinFunc(old, func(a, b Verdict) int { return strings.Compare(a.Version, b.Version) }), true
	}
	return Verdict{}, false
}
