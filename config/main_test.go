package config

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kubeproxy/registry"
)

// logs is where the log files of the tests are, for as long as these run.
var logs string

func TestMain(m *testing.M) {
	var err error
	if logs, err = os.MkdirTemp("", "config-test-"); err != nil {
		panic(err)
	}
	flag.Set("log_dir", logs)
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.Cleanup(func(code int) {
			os.RemoveAll(logs)
			os.Exit(code)
		}))
}

func named(name string) registry.Name {
	return registry.Name{Namespace: registry.DefaultNamespace, Name: name}
}

func newService(name string, port int) *registry.Service {
	return &registry.Service{Name: named(name), Ports: []registry.Port{{Number: uint16(port)}}}
}

func newEndpoints(name string, port int) *registry.Endpoints {
	addr := registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), uint16(port))}
	return &registry.Endpoints{Name: named(name), ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addr)}}}
}

// portOf gives the port of the one endpoint that e has.
func portOf(e *registry.Endpoints) (port uint16) {
	for addr := range e.Of("").All() {
		port = addr.IP.Port()
	}
	return port
}

// A step is an update in the making. Tests write what a source says as
//
//	set().service("web", 80).endpoints("web", 8080)
//	changes().service("web", 81).noService("db")
type step struct{ registry.Update }

func set() step     { return step{registry.Update{Set: true, Received: time.Now()}} }
func changes() step { return step{registry.Update{Received: time.Now()}} }

func (s step) service(name string, port int) step { return s.withService(name, newService(name, port)) }
func (s step) noService(name string) step         { return s.withService(name, nil) }

func (s step) endpoints(name string, port int) step {
	return s.withEndpoints(name, newEndpoints(name, port))
}
func (s step) noEndpoints(name string) step { return s.withEndpoints(name, nil) }

func (s step) withService(name string, v *registry.Service) step {
	s.Services = append(slices.Clone(s.Services), registry.Change[registry.Service]{Name: named(name), Value: v})
	return s
}

func (s step) withEndpoints(name string, v *registry.Endpoints) step {
	s.Endpoints = append(slices.Clone(s.Endpoints), registry.Change[registry.Endpoints]{Name: named(name), Value: v})
	return s
}

// say puts a state or a batch in words that tests can compare: "service web=80, endpoints web=8080".
func say(services map[registry.Name]*registry.Service, endpoints map[registry.Name]*registry.Endpoints) string {
	words := make(map[string]string)
	for name, v := range services {
		value := "gone"
		if v != nil {
			value = fmt.Sprint(v.Ports[0].Number)
		}
		words["service "+name.String()] = value
	}
	for name, v := range endpoints {
		value := "gone"
		if v != nil {
			value = fmt.Sprint(portOf(v))
		}
		words["endpoints "+name.String()] = value
	}
	return sayWords(words)
}

func sayWords(words map[string]string) string {
	var list []string
	for _, object := range slices.Sorted(maps.Keys(words)) {
		list = append(list, object+"="+words[object])
	}
	return strings.Join(list, ", ")
}

// A view is a handler that keeps what it is told, and each batch in words. It has no lock: the race
// detector is to notice if two calls overlap.
type view struct {
	services  map[registry.Name]*registry.Service
	endpoints map[registry.Name]*registry.Endpoints
	batches   []string
	oldest    []time.Time
	partial   atomic.Bool // the last batch was
	busy      atomic.Bool
	overlaps  atomic.Int32
	during    func() // called at the end of each OnUpdate, if it is not nil
}

func newView() *view {
	return &view{
		services:  make(map[registry.Name]*registry.Service),
		endpoints: make(map[registry.Name]*registry.Endpoints),
	}
}

func (v *view) OnUpdate(b registry.Batch) {
	if !v.busy.CompareAndSwap(false, true) {
		v.overlaps.Add(1)
	}
	defer v.busy.Store(false)
	if words := say(b.Services, b.Endpoints); words != "" || len(v.batches) == 0 { // a later one that is empty says only that no source is silent any more
		v.batches = append(v.batches, words)
		v.oldest = append(v.oldest, b.Oldest)
	}
	v.partial.Store(b.Partial)
	v.apply(b)
	if v.during != nil {
		v.during()
	}
}

func (v *view) apply(b registry.Batch) {
	maps.Copy(v.services, b.Services)
	maps.Copy(v.endpoints, b.Endpoints)
	maps.DeleteFunc(v.services, func(_ registry.Name, s *registry.Service) bool { return s == nil })
	maps.DeleteFunc(v.endpoints, func(_ registry.Name, e *registry.Endpoints) bool { return e == nil })
}

// String is all that the view was told, taken together.
func (v *view) String() string { return say(v.services, v.endpoints) }

// wantBatches checks which batches the view was given since it was last asked.
func (v *view) wantBatches(t *testing.T, want ...string) {
	t.Helper()
	if !slices.Equal(v.batches, want) {
		t.Errorf("batches %q, want %q", v.batches, want)
	}
	v.batches, v.oldest = nil, nil
}

// A room is a running mux inside a synctest bubble. It stops with the test.
type room struct {
	broadcaster *Broadcaster
	mux         *Mux
	sources     map[string]chan<- registry.Update
	served      atomic.Bool // another process serves
}

// newRoom starts a mux with these sources, in this order, and one queue for each handler.
func newRoom(t *testing.T, sources []string, handlers ...Handler) *room {
	t.Helper()
	return newRoomWith(t, nil, sources, handlers...)
}

// newRoomWith is newRoom with a fallback, nil for none.
func newRoomWith(t *testing.T, fallback func() (registry.Update, bool), sources []string, handlers ...Handler) *room {
	t.Helper()
	r := &room{broadcaster: NewBroadcaster(), sources: make(map[string]chan<- registry.Update)}
	for _, h := range handlers {
		r.broadcaster.Add(h)
	}
	r.mux = NewMux(r.broadcaster)
	for _, name := range sources {
		r.sources[name] = r.mux.Channel(name)
	}
	if fallback != nil {
		r.mux.Fallback(fallback)
	}
	r.mux.Served(func(context.Context, []string) bool { return r.served.Load() })
	go func() {
		if err := r.mux.Run(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return r
}

// send has a source say something, and waits until all that follows from it, without any time
// passing, has happened.
func (r *room) send(source string, s step) {
	r.sources[source] <- s.Update
	synctest.Wait()
}

// pass lets time go by, and then waits until all that happens at that moment has happened: to wake
// up at the same time as another goroutine does not mean to see what they did.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
