package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A patient is a node whose health is asked for.
type patient struct {
	health
	config.Source // which is asked for nothing but its name and its status
	synced        chan struct{}
	stop, leave   context.CancelFunc

	mu      sync.Mutex // guards the fields below where a goroutine asks while the test edits them
	status  config.Status
	waiting time.Time // since when a change is waiting
	applied time.Time // when the one in hand was received
	open    []proxy.PortStatus
	stalls  error // of an event loop
	drained bool  // by an operator
}

func (p *patient) Name() string { return "etcd" }

func (p *patient) Status() config.Status {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status
}

// edit changes what is wrong with the patient while a goroutine asks.
func (p *patient) edit(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
}

// under returns ask as a function that holds the lock.
func under[T any](p *patient, ask func() T) func() T {
	return func() T {
		p.mu.Lock()
		defer p.mu.Unlock()
		return ask()
	}
}

// newPatient has read everything, applied it, and heard of etcd just now.
func newPatient(t *testing.T) *patient {
	p := &patient{synced: make(chan struct{}), status: config.Status{Ready: true, Heard: time.Now(), Current: time.Now()}}
	ctx, stop := context.WithCancel(t.Context())
	leaving, leave := context.WithCancel(ctx)
	p.stop, p.leave = stop, leave
	p.health = health{
		leaving:  leaving,
		stopping: ctx,
		started:  time.Now(),
		drained:  func() bool { return p.drained },
		stale:    func() bool { return false },
		balancer: balance.NewLoadBalancerRR(false),
		sources:  []config.Source{p},
		stalled:  under(p, func() error { return p.stalls }),
		pending:  under(p, func() config.Pending { return config.Pending{Oldest: p.waiting} }),
		inHand:   under(p, func() time.Time { return p.applied }),
		synced:   p.synced,
		ports:    under(p, func() []proxy.PortStatus { return p.open }),
		counts: under(p, func() (counts [2]proxy.PortCount) {
			for _, s := range p.open {
				switch c := &counts[s.ID.Protocol]; {
				case s.Refused:
					c.Refused++
				case s.Err != nil:
					c.Unopened++
					if errors.Is(s.Err, os.ErrPermission) {
						c.Starved++
					}
				default:
					c.Open++
				}
			}
			return counts
		}),
	}
	close(p.synced)
	return p
}

// words gives the answers of livez, healthz and readyz.
func (p *patient) words() string {
	word := func(err error) string {
		if err == nil {
			return "ok"
		}
		begin, _, _ := strings.Cut(err.Error(), ":")
		return begin
	}
	_, err := p.ready()
	return word(p.live()) + ", " + word(p.healthy()) + ", " + word(err)
}

// TestWhatIsWrongWithANode, in the answers of livez, healthz and readyz: each asks for more than the one before.
func TestWhatIsWrongWithANode(t *testing.T) {
	for _, tt := range []struct {
		name string
		ail  func(*patient)
		want string
	}{
		{"nothing", func(*patient) {}, "ok, ok, ok"},
		{"nothing read yet", func(p *patient) { p.health.synced, p.status.Ready = nil, false }, "ok, ok, not yet"},
		{"first state not applied yet", func(p *patient) { p.health.synced = nil }, "ok, ok, not yet"},
		{"etcd away, and nobody minds", func(p *patient) { time.Sleep(24 * time.Hour) }, "ok, ok, ok"},
		{"etcd away too long", func(p *patient) { p.maxAge = time.Minute; time.Sleep(61 * time.Second) }, "ok, ok, too old"},
		{"etcd away, but not too long", func(p *patient) { p.maxAge = time.Minute; time.Sleep(59 * time.Second) }, "ok, ok, ok"},
		{"a change waits a little", func(p *patient) { p.waiting = time.Now(); time.Sleep(59 * time.Second) }, "ok, ok, ok"},
		{"a change waits", func(p *patient) { p.waiting = time.Now(); time.Sleep(61 * time.Second) }, "stuck, stuck, stuck"},
		{"a handler hangs", func(p *patient) { p.applied = time.Now(); time.Sleep(61 * time.Second) }, "stuck, stuck, stuck"},
		{"an event loop stands still", func(p *patient) { p.stalls = errors.New("loop 0 stands still: so it is") },
			"loop 0 stands still, loop 0 stands still, loop 0 stands still"},
		{"stopping, and a loop stands still", func(p *patient) { p.stalls = errors.New("loop 0 stands still: so it is"); p.stop() }, "ok, draining, draining"},
		{"leaving", func(p *patient) { p.leave() }, "ok, leaving, leaving"},
		{"drained by an operator", func(p *patient) { p.drained = true }, "ok, drained by an operator, drained by an operator"},
		{"drained by an operator, and a loop stands still", func(p *patient) { p.stalls, p.drained = errors.New("loop 0 stands still: so it is"), true },
			"loop 0 stands still, drained by an operator, drained by an operator"},
		{"drained by an operator, and told to stop", func(p *patient) { p.drained = true; p.leave() }, "ok, leaving, leaving"},
		{"leaving, and a loop stands still", func(p *patient) { p.stalls = errors.New("loop 0 stands still: so it is"); p.leave() }, "loop 0 stands still, leaving, leaving"},
		{"stopping", func(p *patient) { p.stop() }, "ok, draining, draining"},
		{"stopping for long, with changes that nobody applies any more", func(p *patient) {
			p.waiting = time.Now()
			p.stop()
			time.Sleep(time.Hour)
		}, "ok, draining, draining"},
		{"a port that another program has", func(p *patient) { p.open = []proxy.PortStatus{{Err: errors.New("in use")}} }, "ok, ok, ok"},
		{"no permission for any port", func(p *patient) { p.open = []proxy.PortStatus{{Err: os.ErrPermission}, {Err: os.ErrPermission}} }, "ok, no port open, no port open"},
		{"no permission for one port", func(p *patient) { p.open = []proxy.PortStatus{{Err: os.ErrPermission}, {}} }, "ok, ok, ok"},
		{"no permission for one port, and another program has the other", func(p *patient) {
			p.open = []proxy.PortStatus{{Err: os.ErrPermission}, {Err: errors.New("in use")}}
		}, "ok, ok, ok"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPatient(t)
				defer p.stop()
				tt.ail(p)
				if got := p.words(); got != tt.want {
					t.Errorf("got %s; want %s", got, tt.want)
				}
				if got, want := p.onlyDrained(), tt.name == "drained by an operator"; got != want {
					t.Errorf("it is not ready only because an operator has drained it: %t; want %t", got, want)
				}
			})
		})
	}
}

// TestTheServiceManagerHearsOfANodeOnlyWhileItIsAlive, twice in the time that it allows.
func TestTheServiceManagerHearsOfANodeOnlyWhileItIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		defer p.stop()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var heard atomic.Int32
		go p.keepAlive(ctx, 15*time.Second, func() { heard.Add(1) })
		wants := func(when string, want int32) {
			t.Helper()
			synctest.Wait()
			if got := heard.Load(); got != want {
				t.Errorf("%s: %d times; want %d", when, got, want)
			}
		}
		wants("at the start", 1)
		time.Sleep(time.Minute)
		wants("after a minute", 5)
		p.edit(func() { p.stalls = errors.New("loop 0 stands still") })
		time.Sleep(time.Hour)
		wants("after an hour without a turn", 5)
		p.edit(func() { p.stalls = nil })
		time.Sleep(15 * time.Second)
		wants("when it turns again", 6)
	})
}

// TestAgeIsOfWhatIsServed: hearing from etcd makes nothing younger that was not applied.
func TestAgeIsOfWhatIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		defer p.stop()
		wants := func(want time.Duration) {
			t.Helper()
			if got := p.age(); got != want {
				t.Errorf("%v, want %v", got, want)
			}
		}
		wants(0)
		time.Sleep(2 * time.Second)
		p.status.Heard = time.Now() // of a watch that is behind
		wants(2 * time.Second)
		p.status.Current = time.Now()
		wants(0)
		p.waiting = time.Now()
		time.Sleep(5 * time.Second)
		p.status.Current = time.Now()
		wants(5 * time.Second)
		p.waiting, p.applied = time.Now(), p.waiting // it is being applied, and another came
		time.Sleep(time.Second)
		wants(6 * time.Second)
		p.applied = time.Time{}
		p.status.Current = time.Now()
		wants(time.Second)
		p.waiting = time.Time{}
		wants(0)
		p.health.synced = nil // nothing is in force
		wants(8 * time.Second)
	})
}

// TestASavedStateIsNeverYoungerThanTheProcess: a clock that was behind when it started makes it no younger, and once the clock is right it has its age.
func TestASavedStateIsNeverYoungerThanTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		defer p.stop()
		p.stale = func() bool { return true }
		p.status = config.Status{}
		wants := func(age time.Duration, note string) {
			t.Helper()
			if got := p.age(); got != age {
				t.Errorf("it is %v old; want %v", got, age)
			}
			want := []string{"stale: nothing has been read from etcd, and what is served was last known to be true " + note}
			if notes, err := p.ready(); err != nil || !slices.Equal(notes, want) {
				t.Errorf("%q, %v; want %q", notes, err, want)
			}
		}
		saved := time.Now().Add(-time.Hour)
		p.saved.Store(&saved)
		wants(time.Hour, "1h0m0s ago")
		saved = time.Now().Add(time.Minute)
		wants(0, "0s ago")
		saved = time.Now().Add(48 * time.Hour)
		time.Sleep(5 * time.Second)
		wants(5*time.Second, saved.UTC().Format(time.RFC3339)+", which this machine's clock has not reached: its age is not known")
		p.maxAge = 4 * time.Second
		if _, err := p.ready(); err == nil {
			t.Error("it is ready although what is served is older than -config_max_age")
		}
	})
}

// TestARegistryWithoutAUsableRecordIsNotReady: an empty one is.
func TestARegistryWithoutAUsableRecordIsNotReady(t *testing.T) {
	p := newPatient(t)
	defer p.stop()
	if _, err := p.ready(); err != nil {
		t.Errorf("with an empty registry: %v", err)
	}
	p.status.Rejected = 32
	if _, err := p.ready(); err == nil || !strings.Contains(err.Error(), "none of these 32 can be used") {
		t.Errorf("with 32 keys that cannot be used: %v", err)
	}
	p.status.Rejections = []config.Rejection{{Encrypted: true, Reason: "encrypted at rest: use -master"}}
	if _, err := p.ready(); err == nil || !strings.Contains(err.Error(), "; they are encrypted at rest: use -master") {
		t.Errorf("with 32 keys that are encrypted: %v", err)
	}
	p.status.Services = 1
	if _, err := p.ready(); err != nil {
		t.Errorf("with one that can: %v", err)
	}
}

// TestPortsNotOpenAreNotedWithoutNames: strangers read it.
func TestPortsNotOpenAreNotedWithoutNames(t *testing.T) {
	p := newPatient(t)
	defer p.stop()
	p.open = []proxy.PortStatus{{Err: errors.New("in use"), Owner: registry.PortKey{Name: registry.Name{Namespace: "default", Name: "secret"}}}, {}}
	if notes, err := p.ready(); fmt.Sprint(notes) != "[ports that services claim and that cannot be opened: 1]" || err != nil {
		t.Errorf("%q, %v", notes, err)
	}
}

// TestAPortThatIsRefusedIsNotOneThatCannotBeOpened: nothing on the machine has to be mended for it.
func TestAPortThatIsRefusedIsNotOneThatCannotBeOpened(t *testing.T) {
	p := newPatient(t)
	defer p.stop()
	web := registry.PortKey{Name: registry.Name{Namespace: "default", Name: "web"}}
	p.open = []proxy.PortStatus{{Err: errors.New("not allowed"), Refused: true, Waiting: []registry.PortKey{web}}, {Owner: web}}
	if notes, err := p.ready(); fmt.Sprint(notes) != "[ports that services ask for and that none may have: 1]" || err != nil {
		t.Errorf("%q, %v", notes, err)
	}
	text, err := json.Marshal(p.configz(nil, nil, nil).Ports)
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"protocol":"tcp","port":0,"owner":"","waiting":["default/web"],"error":"not allowed","refused":true,"endpoints_total":0,"endpoints_failing":0},` +
		`{"protocol":"tcp","port":0,"owner":"default/web","endpoints_total":0,"endpoints_failing":0}]`
	if string(text) != want {
		t.Errorf("/configz has %s; want %s", text, want)
	}
}

func TestConfigzShowsWhichEndpointsFailAndHasRoomForAFewOfEachPort(t *testing.T) {
	p := newPatient(t)
	defer p.stop()
	web := registry.PortKey{Name: registry.Name{Namespace: "default", Name: "web"}}
	var addrs []registry.Addr
	for i := range maxListed + 4 {
		addrs = append(addrs, registry.Addr{IP: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 2, byte(i)}), 80)})
	}
	p.balancer.SetEndpoints(map[registry.Name]*registry.Endpoints{web.Name: {Name: web.Name, ByPort: []registry.PortAddrs{{Addrs: registry.NewAddrs(addrs...)}}, Weights: "10.1.2.2=5"}})
	p.open = []proxy.PortStatus{{Owner: web}}
	rotation := p.balancer.Hold(web)
	rotation.Endpoints()[1].Failed(registry.TCP)
	z := p.configz(nil, nil, nil).Ports[0]
	if len(z.Endpoints) != maxListed || z.Number != len(addrs) || z.Failing != 1 {
		t.Fatalf("%d of %d endpoints, %d of which fail; want %d of %d, and 1", len(z.Endpoints), z.Number, z.Failing, maxListed, len(addrs))
	}
	for i, e := range z.Endpoints {
		if fails := i == 1; (e.Since != "") != fails || (e.Ejected != "") != fails || e.Address != addrs[i].String() {
			t.Errorf("endpoint %d is %+v", i, e)
		}
		want := 1
		if i == 2 {
			want = 5
		}
		if e.Weight != want {
			t.Errorf("endpoint %d has weight %d; want %d", i, e.Weight, want)
		}
	}
}

// TestConfigzIsBounded, with every port claimed by many services of the longest names, on both protocols.
func TestConfigzIsBounded(t *testing.T) {
	p := newPatient(t)
	defer p.stop()
	long := registry.PortKey{Name: registry.Name{Namespace: strings.Repeat("<", 1000), Name: strings.Repeat("\x01", 1<<14)}, Port: strings.Repeat("p", 1<<14)}
	for port := range 1 << 17 {
		s := proxy.PortStatus{ID: registry.ListenerID{Number: uint16(port)}}
		if port < maxPorts/100 { // making labels of all would only take time
			s.Owner, s.Err = long, errors.New("in use")
			for range 100 {
				s.Waiting = append(s.Waiting, long)
			}
		}
		p.open = append(p.open, s)
	}
	z := p.configz(map[string]string{"v": "4"}, []traffic.Limit{{Name: "descriptors", Used: 1, Max: 2}}, nil)
	text, err := json.Marshal(z)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 2<<20 || len(z.Ports) != maxPorts || z.LeftOff != 1<<17-maxPorts || len(z.Ports[0].Waiting) != maxWaiting {
		t.Errorf("%d bytes, %d ports and %d left off, %d waiting", len(text), len(z.Ports), z.LeftOff, len(z.Ports[0].Waiting))
	}
}

// TestConfigzHasTheKeysThatElectEndpoints, with all that a source says of them.
func TestConfigzHasTheKeysThatElectEndpoints(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	z := newSourcez(config.Status{Elections: []config.Election{
		{Key: "/service/pg/leader", Holder: "m1", Services: `"pg"`, Elects: []registry.Name{{Namespace: "default", Name: "pg"}}, Count: 14, Changes: []config.HolderChange{{Holder: "m1", Revision: 7, At: at}},
			Paused: true, API: "http://10.0.0.1:8008", TTL: 30 * time.Second, LeftOut: 2, Out: []string{"pg: m2: it starts"}, Unusable: 3, Rejected: []string{"k: no JSON"}},
		{Key: "/lock", Unconfirmed: true},
	}}, 0)
	text, err := json.Marshal(z.Elections)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"key":"/service/pg/leader","holder":"m1","services":"\"pg\"","elects":["default/pg"],"changes_total":14,"changes":[{"holder":"m1","revision":7,"at":"2026-01-02T03:04:05Z"}],` +
		`"paused":true,"unconfirmed":false,"api":"http://10.0.0.1:8008","ttl_seconds":30,"left_out":2,"left_out_replicas":["pg: m2: it starts"],"rejected":3,"rejected_keys":["k: no JSON"]},` +
		`{"key":"/lock","holder":"","services":"","elects":[],"changes_total":0,"changes":[],"paused":false,"unconfirmed":true,"left_out":0,"left_out_replicas":[],"rejected":0,"rejected_keys":[]}]`
	if string(text) != want {
		t.Errorf("/configz has %s\nwant %s", text, want)
	}
}

// other is a source beside the patient's own.
type other struct {
	config.Source
	status config.Status
}

func (o *other) Name() string          { return "files" }
func (o *other) Status() config.Status { return o.status }

func TestReadyNamesTheSourceThatSaysNothing(t *testing.T) {
	p := newPatient(t)
	defer p.stop()
	files := new(other)
	p.sources = append(p.sources, files)
	synced := make(chan struct{})
	p.health.synced = synced
	if _, err := p.ready(); err == nil || err.Error() != "not yet: nothing has been read from files" {
		t.Errorf("before the first state: %v", err)
	}
	if got := p.progress(); got != "waiting for files: nothing has been read yet" {
		t.Errorf("before the first state: %s", got)
	}
	close(synced) // the Mux has waited for long enough
	notes, err := p.ready()
	if want := []string{"nothing has been read from files: what the other sources hold is served"}; err != nil || !slices.Equal(notes, want) {
		t.Errorf("then: %q, %v; want %q", notes, err, want)
	}
	files.status = config.Status{Ready: true, Current: time.Now().Add(-time.Hour)}
	if notes, err := p.ready(); len(notes) > 0 || err != nil {
		t.Errorf("when it has spoken: %q, %v", notes, err)
	}
	if age := p.age(); age < time.Hour {
		t.Errorf("what is served is %v old; want the age of the oldest source", age)
	}
	if z := p.configz(nil, nil, nil); len(z.Sources) != 2 || z.Sources["files"].ConfigAge < 3600 || z.Sources["etcd"].ConfigAge > 60 {
		t.Errorf("sources of /configz: %+v", z.Sources)
	}
}

// TestProgressSaysWhatIsWaitedFor, once for each change.
func TestProgressSaysWhatIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(t)
		defer p.stop()
		var said []string
		done := make(chan struct{})
		synced := make(chan struct{})
		p.health.synced, p.status = synced, config.Status{Reason: "unreachable"}
		go func() {
			defer close(done)
			p.report(p.stopping, synced, func(line string) { said = append(said, line) }, func() { said = append(said, "ready") })
		}()
		for _, change := range []func(){
			func() {},
			func() { p.status = config.Status{Ready: true, Heard: time.Now()} },
			func() { close(synced); p.open = []proxy.PortStatus{{}, {}, {Err: errors.New("in use")}} },
		} {
			p.edit(change)
			time.Sleep(10*time.Second + time.Millisecond) // between two ticks
			synctest.Wait()
		}
		p.stop()
		<-done
		want := []string{
			"waiting for etcd: unreachable",
			"not yet: the first state has been read from etcd, and is being applied",
			"serving: 2 ports open; ports that services claim and that cannot be opened: 1",
			"ready",
		}
		if !slices.Equal(said, want) {
			t.Errorf("said %q; want %q", said, want)
		}
	})
}
