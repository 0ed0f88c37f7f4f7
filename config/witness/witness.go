// Package witness asks a primary of Patroni whether it still is one, while etcd cannot say so.
//
// A node that does not reach etcd keeps the last primary, however old that knowledge is: with failsafe_mode Patroni does the same. Where the node alone is
// cut off, the rest of the cluster elects another primary, and clients of the node go on talking to the old one until it is demoted. A service with the
// annotation kube-proxy/patroni-stale=ask is kept from that: once etcd has been silent for the ttl of the leader's key, its node asks the REST API of the
// last primary each second. An answer 200 of /primary keeps it. After three other outcomes in a row it is in force no more, until one answers 200 or
// etcd does.
//
//	etcdsource ──Update──▶ Source ──Update──▶ Mux
//	                         │ GET /primary, each second, while the source beneath is behind by more than the ttl
//	                         ▼
//	                       Patroni
package witness

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

const (
	period  = time.Second      // between two questions, and for one answer
	most    = 3                // outcomes other than 200 in a row
	someTTL = 30 * time.Second // Patroni's default, of a cluster whose configuration is not known
)

// A Source is a [config.Source] before another one. Make it with [New].
type Source struct {
	config.Source
	get func(ctx context.Context, url string) error

	mu          sync.Mutex
	unconfirmed map[string]bool // the keys whose primaries are in force no more

	// The rest belongs to the goroutine in Run.
	out      chan<- registry.Update
	answers  chan answer
	services map[registry.Name]string              // the keys of services that ask
	listed   map[registry.Name]*registry.Endpoints // of these: what the source beneath said last
	doubts   map[string]*doubt                     // by key
	revision int64
}

// A doubt is what has been asked about the primary that a key names.
type doubt struct {
	busy   bool // an answer is due
	failed int  // in a row
}

type answer struct {
	key string
	err error
}

// New returns a source that adds questions to another one. The files are for REST APIs with https; none: they are verified with the system's roots.
// They are read again for each question.
func New(beneath config.Source, files etcdconfig.TLSFiles) (*Source, error) {
	secured, err := files.Renewed()
	if err != nil {
		return nil, fmt.Errorf("TLS towards Patroni: %w", err)
	}
	return &Source{Source: beneath, unconfirmed: make(map[string]bool), get: func(ctx context.Context, url string) error {
		// A transport keeps its TLS settings, so each question has one of its own: a CA file may have been replaced.
		return get(ctx, &http.Client{
			Transport:     &http.Transport{TLSClientConfig: secured(), DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, url)
	}}, nil
}

// get asks a URL, whose answer has to be 200.
func get(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return errors.New("its api_url cannot be asked")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// Status implements [config.Source]: it is that of the source beneath, and says which holders are not confirmed. It has no more elections than operators
// are shown, though all primaries are asked.
func (s *Source) Status() config.Status {
	st := s.Source.Status()
	st.Elections = st.Elections[:min(len(st.Elections), config.MaxRejections)]
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.unconfirmed) > 0 {
		st.Elections = slices.Clone(st.Elections) // the one beneath is shared with other readers
		for i := range st.Elections {
			st.Elections[i].Unconfirmed = s.unconfirmed[st.Elections[i].Key]
		}
	}
	return st
}

// confirm notes whether the primary of a key is in force, and reports whether that is news.
func (s *Source) confirm(key string, confirmed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unconfirmed[key] == !confirmed {
		return false
	}
	if confirmed {
		delete(s.unconfirmed, key)
	} else {
		s.unconfirmed[key] = true
	}
	return true
}

// Run implements [config.Source].
func (s *Source) Run(ctx context.Context, out chan<- registry.Update) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.out, s.answers = out, make(chan answer)
	s.services, s.listed = make(map[registry.Name]string), make(map[registry.Name]*registry.Endpoints)
	s.doubts = make(map[string]*doubt)
	said, over := make(chan registry.Update), make(chan error, 1)
	go func() { over <- s.Source.Run(ctx, said) }()
	tick := time.NewTicker(period)
	defer tick.Stop()
	for {
		select {
		case u := <-said:
			s.pass(ctx, u)
		case err := <-over:
			return err
		case <-tick.C:
			s.ask(ctx)
		case a := <-s.answers:
			s.answered(ctx, a)
		}
	}
}

// pass hands an update on. It is an answer of etcd, so it ends all doubts.
func (s *Source) pass(ctx context.Context, u registry.Update) {
	restored := s.endDoubts()
	if s.revision = u.Revision; u.Set {
		clear(s.services)
		clear(s.listed)
	}
	for _, c := range u.Services {
		if delete(s.services, c.Name); c.Value != nil {
			if terms := c.Value.Terms(); terms.Patroni.AsksPrimary() {
				s.services[c.Name] = terms.HolderKey + patroni.LeaderKey
			}
		}
	}
	for _, c := range u.Endpoints {
		if s.listed[c.Name] = c.Value; c.Value == nil {
			delete(s.listed, c.Name)
		}
		delete(restored, c.Name) // the update says it
	}
	for name, value := range restored {
		if !u.Set {
			u.Endpoints = append(u.Endpoints, registry.Change[registry.Endpoints]{Name: name, Value: value})
		}
	}
	s.send(ctx, u)
}

// endDoubts returns what is in force again.
func (s *Source) endDoubts() map[registry.Name]*registry.Endpoints {
	restored := make(map[registry.Name]*registry.Endpoints)
	for key, d := range s.doubts {
		if d.failed = 0; s.confirm(key, true) {
			s.each(key, func(name registry.Name, listed *registry.Endpoints) { restored[name] = listed })
		}
		if !d.busy {
			delete(s.doubts, key)
		}
	}
	return restored
}

// each calls f with the services that a key is asked for, and what the source beneath lists for them.
func (s *Source) each(key string, f func(registry.Name, *registry.Endpoints)) {
	for name, of := range s.services {
		if listed := s.listed[name]; of == key && listed != nil {
			f(name, listed)
		}
	}
}

func (s *Source) send(ctx context.Context, u registry.Update) {
	select {
	case s.out <- u:
	case <-ctx.Done():
	}
}

// ask asks the primaries about which etcd has said nothing for a ttl.
func (s *Source) ask(ctx context.Context) {
	if len(s.services) == 0 {
		return
	}
	st := s.Source.Status()
	asked := make(map[string]bool)
	for _, key := range s.services {
		asked[key] = true
	}
	for _, e := range st.Elections {
		if !asked[e.Key] {
			continue
		}
		delete(asked, e.Key) // clusters that ask come first. A key that a service follows by itself comes again, without TTL and API
		ttl := e.TTL
		if ttl <= 0 {
			ttl = someTTL
		}
		switch d := s.doubts[e.Key]; {
		case e.Holder == "":
		case time.Since(st.Current) <= ttl: // etcd answers, though nothing has changed
			if d != nil {
				s.restore(ctx, e.Key, "etcd answers")
			}
		case d == nil || !d.busy:
			if d == nil {
				d = new(doubt)
				s.doubts[e.Key] = d
			}
			d.busy = true
			go s.question(ctx, e.Key, e.API)
		}
	}
}

// question asks one REST API.
func (s *Source) question(ctx context.Context, key, api string) {
	err := errors.New("its record has no usable api_url")
	if api != "" {
		limited, cancel := context.WithTimeout(ctx, period)
		err = s.get(limited, api+"/primary")
		cancel()
	}
	select {
	case s.answers <- answer{key, err}:
	case <-ctx.Done():
	}
}

// answered handles one answer.
func (s *Source) answered(ctx context.Context, a answer) {
	d := s.doubts[a.key]
	d.busy = false
	if a.err == nil {
		s.restore(ctx, a.key, "it says that it is")
		return
	}
	if d.failed++; d.failed != most || !s.confirm(a.key, false) {
		return
	}
	glog.Errorf("the primary that key %s names is in force no more: etcd is away, and %d questions in a row whether it still is were answered otherwise, the last one: %s",
		registry.Quote(a.key), most, registry.Quote(a.err.Error()))
	s.change(ctx, a.key, func(name registry.Name, _ *registry.Endpoints) *registry.Endpoints {
		return &registry.Endpoints{Name: name}
	})
}

// restore ends a doubt.
func (s *Source) restore(ctx context.Context, key, why string) {
	if s.doubts[key].failed = 0; s.confirm(key, true) {
		glog.Infof("the primary that key %s names is in force again: %s", registry.Quote(key), why)
		s.change(ctx, key, func(_ registry.Name, listed *registry.Endpoints) *registry.Endpoints { return listed })
	}
}

// change sends other endpoints of the services that a key is asked for.
func (s *Source) change(ctx context.Context, key string, to func(registry.Name, *registry.Endpoints) *registry.Endpoints) {
	u := registry.Update{Revision: s.revision, Received: time.Now()}
	s.each(key, func(name registry.Name, listed *registry.Endpoints) {
		u.Endpoints = append(u.Endpoints, registry.Change[registry.Endpoints]{Name: name, Value: to(name, listed)})
	})
	s.send(ctx, u)
}
