package apisource

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config/apisource/apitest"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/internal/apiserver"
	"kubeproxy/registry"
)

func TestMain(m *testing.M) { recordstest.Main(m) }

// dialects are the servers that tests run against.
var dialects = map[string]apiserver.Dialect{"0.4.4": apiserver.V044, "0.5.4": apiserver.V054, "1.36.3": apiserver.V1, "1.16.0": apiserver.V1Endpoints}

// A follower is a source that follows a server, and what it has said. It lives in a bubble of package synctest.
type follower struct {
	t       *testing.T
	server  *apiserver.Server
	network *apitest.Network
	source  *Source
	stop    func() // ends the source, and waits

	mu      sync.Mutex            // guards the fields below
	each    func(registry.Update) // called for each update
	sets    int
	updates []registry.Update
	state   map[string]string // what is in force, by "service web" and "endpoints web"
}

// follow runs a test in a bubble, against a server of each dialect. The source begins when the test calls begin.
func follow(t *testing.T, test func(*follower)) {
	for name, dialect := range dialects {
		t.Run(name, func(t *testing.T) { followOne(t, dialect, test) })
	}
}

func followOne(t *testing.T, dialect apiserver.Dialect, test func(*follower)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &follower{t: t, server: apiserver.New(dialect), state: make(map[string]string)}
		f.network = apitest.Serve(t, f.server)
		test(f)
	})
}

// begin runs the source until the test ends.
func (f *follower) begin(edit ...func(*Config)) {
	f.t.Helper()
	cfg := Config{Server: "http://api.test", dial: f.network.Dial}
	for _, e := range edit {
		e(&cfg)
	}
	var err error
	if f.source, err = New(cfg); err != nil {
		f.t.Fatal(err)
	}
	out := make(chan registry.Update)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := f.source.Run(ctx, out); err != nil {
			f.t.Errorf("the source ended: %v", err)
		}
		close(out)
	})
	running.Go(func() {
		for u := range out {
			f.note(u)
		}
	})
	f.stop = func() {
		stop()
		running.Wait()
	}
	f.t.Cleanup(f.stop)
}

// note applies an update to the state.
func (f *follower) note(u registry.Update) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.updates = append(f.updates, u)
	if f.each != nil {
		f.each(u)
	}
	if u.Set {
		f.sets++
		clear(f.state)
	}
	for _, c := range u.Services {
		if key := "service " + c.Name.String(); c.Value == nil {
			delete(f.state, key)
		} else {
			f.state[key] = ports(c.Value)
		}
	}
	for _, c := range u.Endpoints {
		if key := "endpoints " + c.Name.String(); c.Value == nil {
			delete(f.state, key)
		} else {
			f.state[key] = addrs(c.Value)
		}
	}
}

func ports(s *registry.Service) string {
	var all []string
	for _, p := range s.Ports {
		all = append(all, fmt.Sprint(p.Number))
	}
	return strings.Join(all, " ")
}

func addrs(e *registry.Endpoints) string {
	var all []string
	for _, p := range e.ByPort {
		for a := range p.Addrs.All() {
			all = append(all, a.String())
		}
	}
	return strings.Join(all, " ")
}

// says gives what is in force in one line, sorted.
func (f *follower) says() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for key, value := range f.state {
		all = append(all, key+"="+value)
	}
	slices.Sort(all)
	return strings.Join(all, "; ")
}

// soon lets the bubble come to rest, after a moment in which whatever needs no waiting is done.
func (f *follower) soon() { f.after(time.Second) }

func (f *follower) after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want compares what is in force.
func (f *follower) want(want string) {
	f.t.Helper()
	if got := f.says(); got != want {
		f.t.Errorf("in force is %q; want %q", got, want)
	}
}

type exchange = apiserver.Exchange

// count counts the requests so far: lists of services, or watches of them.
func (f *follower) count(what string) (n int) {
	for _, path := range f.server.Requests() {
		services := strings.Contains(path, "/services?")
		watch := strings.Contains(path, "watch")
		if services && watch == (what == "watch") && !strings.HasSuffix(path, "limit=1") && !strings.Contains(path, "limit=1&") {
			n++
		}
	}
	return n
}
