package register

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

// A world is an etcd, and who looks into it.
type world struct {
	t    *testing.T
	etcd *etcdtest.Process
	c    *clientv3.Client
}

func newWorld(t *testing.T) *world {
	t.Parallel()
	s := etcdtest.StartProcess(t)
	return &world{t, s, s.Client(t)}
}

// An instance has a registrar that runs.
type instance struct {
	*Registrar
	fails atomic.Bool // its check does
	stop  func()      // asks the registrar to stop
	over  chan struct{}
}

const testTTL = 600 * time.Millisecond // the registrar looks every 200 ms; etcd grants no lease shorter than its minimum, 2 s

func (w *world) register(url string, edits ...func(*Config)) *instance {
	w.t.Helper()
	in := w.instance(url, edits...)
	ctx, stop := context.WithCancel(w.t.Context())
	in.stop = stop
	go func() {
		defer close(in.over)
		in.Run(ctx)
	}()
	w.t.Cleanup(in.end)
	return in
}

// instance makes an instance whose registrar has not begun.
func (w *world) instance(url string, edits ...func(*Config)) *instance {
	w.t.Helper()
	in := &instance{over: make(chan struct{})}
	cfg := Config{
		Etcd: etcdsource.Config{Endpoints: []string{url}},
		Instance: Instance{
			Service: registry.Name{Namespace: "default", Name: "web"},
			Host:    "node-1",
			Address: netip.MustParseAddr("10.0.0.7"),
			Ports:   []Port{{"http", 8080, registry.TCP}},
			Weight:  1,
		},
		Check: func(context.Context) error {
			if in.fails.Load() {
				return errors.New("it does not answer")
			}
			return nil
		},
		Interval: 20 * time.Millisecond,
		TTL:      testTTL,
		Drain:    time.Millisecond,
	}
	for _, edit := range edits {
		edit(&cfg)
	}
	r, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	in.Registrar = r
	return in
}

// end stops the registrar, and returns when it has stopped.
func (in *instance) end() {
	in.stop()
	<-in.over
}

// until waits until the record of a key is as wanted: nil for none.
func (w *world) until(key, what string, ok func(kv *record) bool) *record {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	resp, err := w.c.Get(ctx, key)
	if err != nil {
		w.t.Fatal(err)
	}
	var now *record
	if len(resp.Kvs) > 0 {
		now = recordOf(resp.Kvs[0].Value, resp.Kvs[0].Lease, resp.Kvs[0].ModRevision)
	}
	if ok(now) {
		return now
	}
	for change := range w.c.Watch(ctx, key, clientv3.WithRev(resp.Header.Revision+1)) {
		for _, ev := range change.Events {
			now = nil
			if ev.Type == clientv3.EventTypePut {
				now = recordOf(ev.Kv.Value, ev.Kv.Lease, ev.Kv.ModRevision)
			}
			if ok(now) {
				return now
			}
		}
	}
	w.t.Fatalf("%s is not %s: %v", key, what, now)
	return nil
}

// A record is what etcd holds.
type record struct {
	owner    string
	now      state
	lease    int64
	revision int64
}

func recordOf(value []byte, lease, revision int64) *record {
	owner, now := readOwner(value)
	return &record{owner, now, lease, revision}
}

func (w *world) untilOwned(in *instance) *record {
	w.t.Helper()
	return w.until(in.key, "published by its registrar", func(r *record) bool { return r != nil && r.owner == in.owner && r.now == ready })
}

// writeAsAnother writes the record of an instance as another registrar does, with a lease that outlasts the test.
func (w *world) writeAsAnother(in *instance, now state) error {
	grant, err := w.c.Grant(w.t.Context(), 3600)
	if err == nil {
		_, err = w.c.Put(w.t.Context(), in.key, string(in.cfg.Instance.record("another", now)), clientv3.WithLease(grant.ID))
	}
	return err
}

func (w *world) untilAbsent(key string) {
	w.t.Helper()
	w.until(key, "absent", func(r *record) bool { return r == nil })
}

func TestTheRecordSaysWhetherTheCheckPasses(t *testing.T) {
	w := newWorld(t)
	in := w.register(w.etcd.URL())
	w.untilOwned(in)
	in.fails.Store(true)
	w.until(in.key, "for nobody", func(r *record) bool { return r != nil && r.now == failing })
	in.fails.Store(false)
	w.untilOwned(in)
}

func TestAnInstanceWhoseCheckHasNeverPassedHasNoRecord(t *testing.T) {
	w := newWorld(t)
	checked := make(chan struct{}, 100)
	in := w.register(w.etcd.URL(), func(c *Config) {
		c.Check = func(context.Context) error {
			select {
			case checked <- struct{}{}:
			default:
			}
			return errors.New("it does not answer")
		}
	})
	for range 20 { // two of them are the first failure; each of the others follows what came of the one before
		<-checked
	}
	in.end()
	if resp, err := w.c.Get(t.Context(), "", clientv3.WithPrefix()); err != nil || resp.Header.Revision != 1 {
		t.Errorf("etcd was written to: %+v, %v", resp, err)
	}
}

func TestARegistrarThatHasPublishedNothingStopsAtOnce(t *testing.T) {
	w := newWorld(t)
	in := w.register(w.etcd.URL(), func(c *Config) {
		c.Check, c.Drain = func(context.Context) error { return errors.New("it does not answer") }, time.Hour
	})
	in.end()
}

// decoded is what proxies make of the record of an instance.
func (w *world) decoded(in *instance) *registry.EndpointSlice {
	w.t.Helper()
	w.untilOwned(in)
	resp, err := w.c.Get(w.t.Context(), in.key)
	if err != nil {
		w.t.Fatal(err)
	}
	got, warnings, err := decode.Decode(in.key, resp.Kvs[0].Value)
	if err != nil || len(warnings) > 0 {
		w.t.Fatal(warnings, err)
	}
	return got.Slice
}

func TestTheRecordDecodesToTheInstance(t *testing.T) {
	w := newWorld(t)
	in := w.register(w.etcd.URL())
	want := registry.NewAddrs(registry.Addr{IP: netip.MustParseAddrPort("10.0.0.7:8080")})
	if s := w.decoded(in); s.ServiceName() != in.cfg.Instance.Service || len(s.Ready) != 1 || s.Ready[0] != (registry.PortAddrs{Port: "http", Addrs: want}) || s.Weights != "" {
		t.Errorf("it decodes to %+v", s)
	}
}

func TestTheRecordHasTheWeightOfTheInstanceAndTheSameKey(t *testing.T) {
	w := newWorld(t)
	one := w.register(w.etcd.URL())
	w.untilOwned(one)
	one.end()
	for weight, want := range map[int]registry.Weights{0: "10.0.0.7:8080=0", 256: "10.0.0.7:8080=256"} {
		in := w.register(w.etcd.URL(), func(c *Config) { c.Instance.Weight = weight })
		if got := w.decoded(in).Weights; got != want || in.key != one.key {
			t.Errorf("key %s has the weights %q; want %q at %s", in.key, got, want, one.key)
		}
		in.end()
	}
}

func TestWhateverBecomesOfTheRecordItComesBack(t *testing.T) {
	w := newWorld(t)
	in := w.register(w.etcd.URL())
	for _, c := range []struct {
		name string
		harm func(now *record) error
	}{
		{"deleted", func(*record) error { _, err := w.c.Delete(t.Context(), in.key); return err }},
		{"lease revoked", func(now *record) error { _, err := w.c.Revoke(t.Context(), clientv3.LeaseID(now.lease)); return err }},
		{"taken from its lease", func(*record) error {
			_, err := w.c.Put(t.Context(), in.key, string(in.cfg.Instance.record(in.owner, ready)))
			return err
		}},
		{"written anew by hand", func(*record) error {
			_, err := w.c.Put(t.Context(), in.key, string(in.cfg.Instance.record("", ready)))
			return err
		}},
		{"put back from a dump", func(*record) error {
			_, err := w.c.Put(t.Context(), in.key, string(in.cfg.Instance.record("earlier", ready)))
			return err
		}},
		{"called terminating", func(now *record) error {
			_, err := w.c.Put(t.Context(), in.key, string(in.cfg.Instance.record(in.owner, terminating)), clientv3.WithLease(clientv3.LeaseID(now.lease)))
			return err
		}},
		{"all deleted", func(*record) error { _, err := w.c.Delete(t.Context(), "", clientv3.WithPrefix()); return err }},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := w.untilOwned(in)
			if err := c.harm(before); err != nil {
				t.Fatal(err)
			}
			w.until(in.key, "repaired", func(r *record) bool {
				return r != nil && r.revision > before.revision+1 && r.owner == in.owner && r.now == ready && r.lease != 0
			})
		})
	}
}

// A registrar that was paused for longer than its lease knows nothing of its instance when it goes on.
func TestAnInstanceIsCheckedBeforeItIsRegisteredAgain(t *testing.T) {
	w := newWorld(t)
	var held atomic.Bool
	entered, results := make(chan struct{}), make(chan error)
	in := w.register(w.etcd.URL(), func(c *Config) {
		c.Interval = time.Minute // only what the registrar asks for is checked, and how long that takes does not matter
		c.Check = func(ctx context.Context) error {
			if !held.Load() {
				return nil
			}
			entered <- struct{}{}
			return <-results
		}
	})
	before := w.untilOwned(in)
	held.Store(true)
	if _, err := w.c.Revoke(t.Context(), clientv3.LeaseID(before.lease)); err != nil {
		t.Fatal(err)
	}
	<-entered
	other := w.register(w.etcd.URL(), func(c *Config) { c.Check, c.Instance.Host = nil, "node-2" })
	for range 2 { // this takes the other registrar two looks; so the first one has looked again, too
		now := w.untilOwned(other)
		if _, err := w.c.Revoke(t.Context(), clientv3.LeaseID(now.lease)); err != nil {
			t.Fatal(err)
		}
		w.until(other.key, "back", func(r *record) bool { return r != nil && r.lease != now.lease })
	}
	resp, err := w.c.Get(t.Context(), in.key)
	if err != nil || len(resp.Kvs) > 0 {
		t.Errorf("the record is back before the check has passed: %v, %v", resp, err)
	}
	held.Store(false)
	results <- nil
	w.untilOwned(in)
}

func TestAStopMarksTheRecordBeforeItDeletesIt(t *testing.T) {
	w := newWorld(t)
	drained := make(chan struct{})
	gone := make(chan struct{})
	in := w.register(w.etcd.URL(), func(c *Config) {
		c.Gone, c.Drained = gone, func() { close(drained) }
	})
	lease := w.untilOwned(in).lease
	in.stop()
	w.until(in.key, "terminating", func(r *record) bool { return r != nil && r.now == terminating })
	<-drained
	select {
	case <-in.over:
		t.Error("the registrar left before the instance had ended")
	default:
	}
	close(gone)
	<-in.over
	w.untilAbsent(in.key)
	if left, err := w.c.TimeToLive(t.Context(), clientv3.LeaseID(lease)); err != nil || left.TTL > 0 {
		t.Errorf("the lease lives on: %+v, %v", left, err)
	}
}

func TestAnInstanceThatHasEndedIsDeletedAtOnce(t *testing.T) {
	w := newWorld(t)
	gone := make(chan struct{})
	in := w.register(w.etcd.URL(), func(c *Config) { c.Gone, c.Drain = gone, time.Hour })
	w.untilOwned(in)
	close(gone)
	<-in.over
	w.untilAbsent(in.key)
}

func TestOfTwoRegistrarsTheLaterPublishesAndTheOtherTakesOverWithoutAGap(t *testing.T) {
	w := newWorld(t)
	first := w.register(w.etcd.URL())
	w.untilOwned(first)
	gone := make(chan struct{})
	second := w.register(w.etcd.URL(), func(c *Config) { c.Gone, c.Drain, c.TTL = gone, time.Hour, time.Hour }) // the end of its lease is no gap of the registrar's
	published := w.untilOwned(second)
	second.stop()
	gap := false
	w.until(first.key, "the first one's again", func(r *record) bool {
		gap = gap || r == nil
		return r != nil && r.owner == first.owner
	})
	if gap {
		t.Errorf("the record was absent after revision %d", published.revision)
	}
	close(gone)
	<-second.over
	w.until(first.key, "still the first one's", func(r *record) bool { return r != nil && r.owner == first.owner })
}

func TestARegistrarThatIsCutOffIsReplacedAndYieldsWhenItIsBack(t *testing.T) {
	w := newWorld(t)
	link := etcdtest.NewLink(t, w.etcd.Addr())
	first := w.register(w.etcd.URL(), func(c *Config) { c.TTL = 6 * time.Second }) // it looks every 2 s, and its lease outlasts a machine that is busy for some
	w.untilOwned(first)
	second := w.register("http://" + link.Addr())
	w.untilOwned(second)
	link.Down()
	now := w.untilOwned(first) // the lease has expired
	link.Up()
	w.until(first.key, "still the first one's", func(r *record) bool { return r != nil && r.owner == first.owner })
	second.end()
	if then := w.untilOwned(first); then.lease != now.lease || then.revision != now.revision {
		t.Errorf("the record changed hands: lease %x at revision %d, then %x at %d", now.lease, now.revision, then.lease, then.revision)
	}
}

func TestTheRecordOfAnotherIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	in := w.register(w.etcd.URL())
	w.untilOwned(in)
	if err := w.writeAsAnother(in, ready); err != nil {
		t.Fatal(err)
	}
	in.end()
	w.until(in.key, "the other's", func(r *record) bool { return r != nil && r.owner == "another" })
}

func TestARegistrarComesBackAfterAnOutageLongerThanItsLease(t *testing.T) {
	w := newWorld(t)
	link := etcdtest.NewLink(t, w.etcd.Addr())
	in := w.register("http://" + link.Addr())
	before := w.untilOwned(in)
	link.Down()
	w.untilAbsent(in.key)
	link.Up()
	if after := w.untilOwned(in); after.lease == before.lease {
		t.Errorf("the record belongs to the lease %x that had expired", after.lease)
	}
}
