// Package witness asks a primary of Patroni whether it is one: while etcd cannot say so, and before it is promoted.
//
// A node that does not reach etcd keeps the last primary, however old that knowledge is: with failsafe_mode Patroni does the same. Where the node alone is
// cut off, the rest of the cluster elects another primary, and clients of the node go on talking to the old one until it is demoted. A service with the
// annotation kube-proxy/patroni-stale=ask is kept from that: once etcd has been silent for the ttl of the leader's key, its node asks the REST API of the
// last primary each second. An answer 200 of /primary keeps it. After three other outcomes in a row it is in force no more, until one answers 200 or
// etcd does. So a primary that is silent has no client three seconds after the ttl.
//
// The key names a new primary before PostgreSQL there is promoted, and until then it takes no writes. For a service with kube-proxy/patroni-unpromoted=ask
// the new primary is in force once its REST API says that it is promoted: see promotion.go.
//
//	etcdsource ──Update──▶ Source ──Update──▶ Mux
//	                         │ GET /primary, each second, while the source beneath is behind by more than the ttl
//	                         │ GET /patroni, up to 20 times a second, while a new primary is not promoted
//	                         ▼
//	                       Patroni
package witness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/glog"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/registry"
	"kubeproxy/registry/patroni"
)

const (
	period  = time.Second      // between two questions, the first of which comes when the ttl is over
	limit   = 8 * period / 10  // for an answer. The third question fails before a third period is over, and leaves time for clients to be reset in it
	soon    = period / 10      // until a question is looked at again that is answered too late for the next one
	most    = 3                // outcomes other than 200 in a row
	someTTL = 30 * time.Second // Patroni's default, of a cluster whose configuration is not known
)

// A Source is a [config.Source] before another one. Make it with [New].
type Source struct {
	config.Source
	get func(ctx context.Context, url string, into *state) error

	mu          sync.Mutex
	unconfirmed map[string]bool // the keys whose primaries are in force no more

	// The rest belongs to the goroutine in Run.
	out      chan<- registry.Update
	answers  chan answer
	services map[registry.Name]asking              // those that ask
	listed   map[registry.Name]*registry.Endpoints // what the source beneath said last
	doubts   map[string]*doubt                     // by key
	revision int64

	promotions promotions
	passed     atomic.Int64 // the revision, for askRole
}

// An asking is what a service has asked of its primary.
type asking struct {
	key               string // that names the primary
	stale, unpromoted bool
}

// A state is what the REST API says of a member.
type state struct{ Role string }

// A doubt is what has been asked about the primary that a key names.
type doubt struct {
	asked  time.Time // last
	busy   bool      // an answer is due
	failed int       // in a row
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
	return &Source{Source: beneath, unconfirmed: make(map[string]bool), get: func(ctx context.Context, url string, into *state) error {
		// A transport keeps its TLS settings, so each question has one of its own: a CA file may have been replaced.
		return get(ctx, &http.Client{
			Transport:     &http.Transport{TLSClientConfig: secured(), DisableKeepAlives: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}, url, into)
	}}, nil
}

// get asks a URL, whose answer has to be 200. It reads the answer if it is given where to.
func get(ctx context.Context, client *http.Client, url string, into *state) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return errors.New("its api_url cannot be asked")
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d", resp.StatusCode)
	case into == nil:
		return nil
	}
	if json.NewDecoder(io.LimitReader(resp.Body, patroni.MaxValue)).Decode(into) != nil {
		return errors.New("no JSON object")
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
	s.services, s.listed = make(map[registry.Name]asking), make(map[registry.Name]*registry.Endpoints)
	s.doubts = make(map[string]*doubt)
	s.promotions = promotions{ask: s.askRole, over: make(chan *promotion), of: make(map[string]*promotion)}
	said, over := make(chan registry.Update), make(chan error, 1)
	go func() { over <- s.Source.Run(ctx, said) }()
	look := time.NewTimer(period)
	defer look.Stop()
	for {
		select {
		case u := <-said:
			s.pass(ctx, u)
		case err := <-over:
			return err
		case <-look.C:
			look.Reset(s.ask(ctx))
		case a := <-s.answers:
			s.answered(ctx, a)
		case p := <-s.promotions.over:
			if s.promotions.end(p) {
				s.change(ctx, p.key)
			}
		}
	}
}

// pass hands an update on. It is an answer of etcd, so it ends all doubts.
func (s *Source) pass(ctx context.Context, u registry.Update) {
	again := s.endDoubts()
	asked, before := s.services, s.listed
	s.passed.Store(u.Revision)
	if s.revision = u.Revision; u.Set {
		s.services, s.listed = make(map[registry.Name]asking), make(map[registry.Name]*registry.Endpoints, len(u.Endpoints))
	}
	changed := make(map[registry.Name]bool) // of those that ask something else now
	for _, c := range u.Services {
		was := asked[c.Name]
		if delete(s.services, c.Name); c.Value != nil {
			terms := c.Value.Terms()
			if p := &terms.Patroni; p.AsksPrimary() {
				s.services[c.Name] = asking{terms.HolderKey + patroni.LeaderKey, p.Ask, p.Unpromoted}
			}
		}
		if s.services[c.Name] != was {
			changed[c.Name], again[c.Name] = true, true
		}
	}
	for i, c := range u.Endpoints {
		if of := s.services[c.Name]; of.unpromoted && !changed[c.Name] {
			s.promotions.change(ctx, of.key, c.Name, before[c.Name], c.Value)
		}
		if s.listed[c.Name] = c.Value; c.Value == nil {
			delete(s.listed, c.Name)
		}
		u.Endpoints[i].Value = s.inForce(c.Name)
		delete(again, c.Name) // the update says it
	}
	for name := range again {
		if !u.Set && s.listed[name] != nil {
			u.Endpoints = append(u.Endpoints, registry.Change[registry.Endpoints]{Name: name, Value: s.inForce(name)})
		}
	}
	s.send(ctx, u)
}

// inForce is what the source beneath lists for a service, or nothing while the primary is not known to be one.
func (s *Source) inForce(name registry.Name) *registry.Endpoints {
	listed, of := s.listed[name], s.services[name]
	if listed == nil || of.key == "" {
		return listed
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.stale && s.unconfirmed[of.key] || of.unpromoted && s.promotions.hold(of.key, name) {
		return &registry.Endpoints{Name: name}
	}
	return listed
}

// endDoubts returns the services of which something is in force again.
func (s *Source) endDoubts() (again map[registry.Name]bool) {
	again = make(map[registry.Name]bool)
	for key, d := range s.doubts {
		if d.failed = 0; s.confirm(key, true) {
			for name := range s.of(key) {
				again[name] = true
			}
		}
		if !d.busy {
			delete(s.doubts, key)
		}
	}
	return again
}

// of gives the services that a key is asked for, and for which the source beneath lists something.
func (s *Source) of(key string) iter.Seq[registry.Name] {
	return func(yield func(registry.Name) bool) {
		for name, of := range s.services {
			if of.key == key && s.listed[name] != nil && !yield(name) {
				return
			}
		}
	}
}

func (s *Source) send(ctx context.Context, u registry.Update) {
	select {
	case s.out <- u:
	case <-ctx.Done():
	}
}

// ask asks the primaries about which etcd has said nothing for a ttl, and which were asked a period ago or never. It returns how long it is until the next
// question may be due: a period at most, for what etcd says comes unseen.
func (s *Source) ask(ctx context.Context) (wait time.Duration) {
	wait = period
	if len(s.services) == 0 {
		return wait
	}
	st := s.Source.Status()
	asked := make(map[string]bool)
	for _, of := range s.services {
		if of.stale {
			asked[of.key] = true
		}
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
		d := s.doubts[e.Key]
		rest := ttl - time.Since(st.Current)
		switch {
		case e.Holder == "":
			rest = period
		case rest > 0: // etcd answers, though nothing has changed
			if d != nil {
				s.restore(ctx, e.Key, "etcd answers")
			}
		default:
			if d == nil {
				d = new(doubt)
				s.doubts[e.Key] = d
			}
			switch rest = period - time.Since(d.asked); {
			case rest > 0:
			case d.busy:
				rest = soon
			default:
				d.busy, d.asked, rest = true, time.Now(), period
				go s.question(ctx, e.Key, e.API)
			}
		}
		wait = min(wait, rest)
	}
	return wait
}

// question asks one REST API.
func (s *Source) question(ctx context.Context, key, api string) {
	err := errors.New("its record has no usable api_url")
	if api != "" {
		limited, cancel := context.WithTimeout(ctx, limit)
		err = s.get(limited, api+"/primary", nil)
		cancel()
	}
	select {
	case s.answers <- answer{key, err}:
	case <-ctx.Done():
	}
}

// askRole asks a new primary for its role. It returns none as long as the source beneath has not said who that is: its status may follow its update.
func (s *Source) askRole(ctx context.Context, key string) (role string, err error) {
	st := s.Source.Status()
	if st.Revision != s.passed.Load() {
		return "", nil
	}
	for _, e := range st.Elections {
		if e.Key != key || e.API == "" {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, period)
		defer cancel()
		var is state
		if err := s.get(limited, e.API+"/patroni", &is); err != nil {
			return "", err
		}
		if is.Role == "" {
			return "", errors.New("no role")
		}
		return is.Role, nil
	}
	return "", errors.New("its record has no usable api_url")
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
	s.change(ctx, a.key)
}

// restore ends a doubt.
func (s *Source) restore(ctx context.Context, key, why string) {
	if s.doubts[key].failed = 0; s.confirm(key, true) {
		glog.Infof("the primary that key %s names is in force again: %s", registry.Quote(key), why)
		s.change(ctx, key)
	}
}

// change sends what is in force now of the services that a key is asked for.
func (s *Source) change(ctx context.Context, key string) {
	u := registry.Update{Revision: s.revision, Received: time.Now()}
	for name := range s.of(key) {
		u.Endpoints = append(u.Endpoints, registry.Change[registry.Endpoints]{Name: name, Value: s.inForce(name)})
	}
	s.send(ctx, u)
}
