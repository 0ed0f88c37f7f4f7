package register

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A wrapped KV has something happen in place of each commit.
type wrapped struct {
	clientv3.KV
	commit func(clientv3.Txn) (*clientv3.TxnResponse, error)
}

func (w wrapped) Txn(ctx context.Context) clientv3.Txn { return wrappedTxn{w.KV.Txn(ctx), w.commit} }

type wrappedTxn struct {
	clientv3.Txn
	commit func(clientv3.Txn) (*clientv3.TxnResponse, error)
}

func (t wrappedTxn) If(cs ...clientv3.Cmp) clientv3.Txn     { t.Txn = t.Txn.If(cs...); return t }
func (t wrappedTxn) Then(ops ...clientv3.Op) clientv3.Txn   { t.Txn = t.Txn.Then(ops...); return t }
func (t wrappedTxn) Else(ops ...clientv3.Op) clientv3.Txn   { t.Txn = t.Txn.Else(ops...); return t }
func (t wrappedTxn) Commit() (*clientv3.TxnResponse, error) { return t.commit(t.Txn) }

// byHand makes an instance whose registrar does only what the test has it do. Its check passes.
func (w *world) byHand() *instance {
	w.t.Helper()
	in := w.unchecked()
	in.checked(result{})
	return in
}

// unchecked makes such an instance of whose check nothing is known yet.
func (w *world) unchecked() *instance {
	w.t.Helper()
	in := w.instance(w.etcd.URL(), func(c *Config) { c.Drain, c.TTL = time.Hour, time.Hour }) // only the test extends the lease: it does not end before
	w.t.Cleanup(func() {
		in.disconnect()
		in.dialer.Close()
	})
	return in
}

// wrap has something happen in place of each commit, until the registrar connects anew.
func (w *world) wrap(in *instance, commit func(clientv3.Txn) (*clientv3.TxnResponse, error)) {
	w.t.Helper()
	if err := in.connect(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	in.client.KV = wrapped{in.client.KV, commit}
}

// reconcile makes one attempt, which has to succeed or fail as wanted.
func (w *world) reconcile(in *instance, succeeds bool) {
	w.t.Helper()
	in.Registrar.reconcile(w.t.Context())
	if (in.failures == 0) != succeeds {
		w.t.Fatalf("%d failures; want a success: %v", in.failures, succeeds)
	}
}

// loseAnswer makes an attempt whose write takes effect, and whose answer does not arrive.
func (w *world) loseAnswer(in *instance) {
	w.t.Helper()
	w.wrap(in, func(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
		resp, err := txn.Commit()
		if err == nil && resp.Succeeded {
			err = errors.New("the answer is lost")
		}
		return resp, err
	})
	w.reconcile(in, false)
}

// now returns the record as it is, or nil.
func (w *world) now(key string) *record {
	w.t.Helper()
	return w.until(key, "read", func(*record) bool { return true })
}

// What a write has done is unknown when its answer is lost. A record that clients may follow is kept true, and drained.
func TestARecordWhoseWriteWasNotAnsweredIsKeptTrueAndDrained(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name    string
		retried bool // the lost answer was followed by an attempt that found the record as wanted
	}{{"before the next attempt", false}, {"after the next attempt", true}} {
		t.Run(c.name, func(t *testing.T) {
			in := w.byHand()
			w.loseAnswer(in)
			if r := w.now(in.key); r == nil || r.owner != in.owner || r.now != ready {
				t.Fatalf("the record is %+v; want it written", r)
			}
			if c.retried {
				w.reconcile(in, true)
				if !in.published {
					t.Error("the record is as wanted, and does not count as published")
				}
			}
			if got := in.drain(); got != time.Hour {
				t.Errorf("clients are given %v to go elsewhere; want an hour", got)
			}
			in.checked(result{err: errors.New("it does not answer")})
			w.reconcile(in, true)
			if r := w.now(in.key); r == nil || r.now != failing {
				t.Errorf("the record is %+v after a check that fails; want one that is for nobody", r)
			}
			in.leave(t.Context())
		})
	}
}

// A registrar that waits for another one replaces its record, and the answer is lost.
func TestARecordThatWasTakenOverWithoutAnAnswerIsDrained(t *testing.T) {
	w := newWorld(t)
	in := w.byHand()
	w.reconcile(in, true)
	if err := w.writeAsAnother(in, ready); err != nil {
		t.Fatal(err)
	}
	w.reconcile(in, true)
	if got := in.drain(); got != 0 || !in.waiting {
		t.Fatalf("clients of another registrar's record are given %v; want none", got)
	}
	if err := w.writeAsAnother(in, terminating); err != nil {
		t.Fatal(err)
	}
	w.loseAnswer(in)
	if r := w.now(in.key); r == nil || r.owner != in.owner {
		t.Fatalf("the record is %+v; want it taken over", r)
	}
	for _, when := range []string{"before the next attempt", "after it"} {
		if got := in.drain(); got != time.Hour {
			t.Errorf("%s: clients are given %v to go elsewhere; want an hour", when, got)
		}
		w.reconcile(in, true)
	}
	in.leave(t.Context())
}

// A registrar that etcd refuses has no record, and nothing to drain. Errors that leave it open whether etcd wrote are no refusals.
func TestAWriteThatEtcdRefusedIsNotDrained(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		err  error
		want time.Duration
	}{
		{rpctypes.ErrPermissionDenied, 0},
		{rpctypes.ErrNoSpace, 0},
		{rpctypes.ErrTimeout, time.Hour},
		{context.DeadlineExceeded, time.Hour},
	} {
		in := w.byHand()
		w.wrap(in, func(clientv3.Txn) (*clientv3.TxnResponse, error) { return nil, c.err })
		w.reconcile(in, false)
		if got := in.drain(); got != c.want {
			t.Errorf("%v: clients are given %v to go elsewhere; want %v", c.err, got, c.want)
		}
		w.loseAnswer(in) // a refusal says nothing of the write before it
		w.wrap(in, func(clientv3.Txn) (*clientv3.TxnResponse, error) { return nil, c.err })
		w.reconcile(in, false)
		if got := in.drain(); got != time.Hour {
			t.Errorf("%v after a write that was not answered: clients are given %v to go elsewhere; want an hour", c.err, got)
		}
		in.leave(t.Context())
	}
}

// Another registrar writes the record between the moment at which it is found to be ours and its deletion.
func TestARecordThatChangesHandsWhileItIsWithdrawnIsNotDeleted(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name  string
		steps int // of the deletion, before the other registrar writes
	}{{"before it is called failing", 0}, {"before it is deleted", 1}} {
		t.Run(c.name, func(t *testing.T) {
			in := w.byHand()
			w.reconcile(in, true)
			steps := 0
			w.wrap(in, func(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
				if steps == c.steps {
					if err := w.writeAsAnother(in, ready); err != nil {
						return nil, err
					}
				}
				steps++
				return txn.Commit()
			})
			if err := in.withdraw(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := w.now(in.key); r == nil || r.owner != "another" || r.now != ready {
				t.Errorf("the record is %+v; want the other registrar's", r)
			}
			if in.lease != 0 {
				t.Errorf("the lease %x lives on", in.lease)
			}
		})
	}
}

// A record without a lease never expires, and no registrar renews it. So the registrar of its instance corrects and deletes it.
func TestARecordThatNoRegistrarKeepsIsKeptTrueDrainedAndDeleted(t *testing.T) {
	w := newWorld(t)
	for _, owner := range []string{"", "earlier"} {
		t.Run("owner "+strconv.Quote(owner), func(t *testing.T) {
			in := w.byHand()
			w.reconcile(in, true)
			putBack := func() {
				t.Helper()
				if _, err := w.c.Put(t.Context(), in.key, string(in.cfg.Instance.record(owner, ready))); err != nil {
					t.Fatal(err)
				}
			}
			putBack()
			in.checked(result{err: errors.New("it does not answer")})
			w.reconcile(in, true)
			if r := w.now(in.key); r == nil || r.now != failing || r.lease == 0 {
				t.Errorf("the record is %+v after a check that fails; want one that is not ready, with a lease", r)
			}
			putBack()
			in.checked(result{})
			w.reconcile(in, true)
			if got := in.drain(); got != time.Hour {
				t.Errorf("clients are given %v to go elsewhere; want an hour", got)
			}
			putBack() // after the last look of the registrar
			in.leave(t.Context())
			if r := w.now(in.key); r != nil {
				t.Errorf("the record is %+v after the registrar has left; want none", r)
			}
		})
	}
}

// putBack writes the record of an instance as a restore from a dump does: ready, without a lease, and by a registrar that is gone.
func (w *world) putBack(in *instance) {
	w.t.Helper()
	if _, err := w.c.Put(w.t.Context(), in.key, string(in.cfg.Instance.record("earlier", ready))); err != nil {
		w.t.Fatal(err)
	}
}

// wait has the record without a lease, which the registrar has seen, be as old as one that no registrar keeps.
func (in *instance) wait() {
	in.orphanSince = in.orphanSince.Add(-in.cfg.TTL - requestTimeout - lastPause)
}

func TestARecordThatNoRegistrarKeepsIsDeletedThoughTheCheckHasNeverPassed(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name string
		act  func(*instance)
	}{
		{"at a look", func(in *instance) { w.reconcile(in, true) }},
		{"at a stop", func(in *instance) { in.leave(t.Context()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := w.unchecked()
			w.putBack(in)
			in.checked(result{err: errors.New("it does not answer")})
			w.reconcile(in, true)
			in.wait()
			c.act(in)
			if r := w.now(in.key); r != nil || in.lease != 0 {
				t.Errorf("the record is %+v, and the registrar's lease %x; want none", r, in.lease)
			}
		})
	}
}

// A restore puts the record of a registrar that lives back without a lease. Until that one looks, a second one which has written nothing leaves it.
func TestARegistrarThatHasWrittenNothingLeavesARestoredRecordToTheOneThatKeepsIt(t *testing.T) {
	w := newWorld(t)
	fail := func(in *instance) { in.checked(result{err: errors.New("it does not answer")}) }
	for _, c := range []struct {
		name string
		act  func(*instance)
	}{
		{"before the first check", func(in *instance) { w.reconcile(in, true) }},
		{"after a check that fails", func(in *instance) { fail(in); w.reconcile(in, true) }},
		{"written anew since the last look", func(in *instance) {
			fail(in)
			w.reconcile(in, true)
			in.wait()
			w.putBack(in)
			w.reconcile(in, true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := w.unchecked()
			in.cfg.TTL = time.Hour // the other one has the time to look, however slow the test is
			w.putBack(in)
			c.act(in)
			for _, when := range []string{"after a look", "after a stop"} {
				if r := w.now(in.key); r == nil || r.owner != "earlier" || r.now != ready || r.lease != 0 {
					t.Errorf("%s the record is %+v; want it as it was put back", when, r)
				}
				in.leave(t.Context())
			}
		})
	}
}

func TestARecordThatGoesWhileItIsWithdrawnIsNotWrittenForAnInstanceThatNeverPassed(t *testing.T) {
	w := newWorld(t)
	in := w.unchecked()
	w.putBack(in)
	in.checked(result{err: errors.New("it does not answer")})
	w.reconcile(in, true)
	in.wait()
	w.wrap(in, func(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
		if _, err := w.c.Delete(t.Context(), in.key); err != nil {
			return nil, err
		}
		return txn.Commit()
	})
	w.reconcile(in, true)
	if r := w.now(in.key); r != nil || in.published {
		t.Errorf("the record is %+v, published: %v; want none", r, in.published)
	}
}

func TestARecordWithoutALeaseIsDeletedByARegistrarThatHasNoLeaseEither(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name  string
		lived func(*instance)
	}{
		{"its lease is lost, and no check has passed since", func(in *instance) {
			in.checked(result{})
			w.reconcile(in, true)
			if _, err := w.c.Revoke(t.Context(), in.lease); err != nil {
				t.Fatal(err)
			}
			w.reconcile(in, true)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			in := w.unchecked()
			c.lived(in)
			if in.lease != 0 {
				t.Fatalf("the registrar has the lease %x", in.lease)
			}
			w.putBack(in)
			in.leave(t.Context())
			if r := w.now(in.key); r != nil {
				t.Errorf("the record is %+v after the registrar has left; want none", r)
			}
		})
	}
}

// A refused deletion is done by the end of the record's lease, and a record without one has none.
func TestARefusedDeletionOfARecordWithoutALeaseFails(t *testing.T) {
	w := newWorld(t)
	in := w.unchecked()
	w.putBack(in)
	if err := in.withdraw(t.Context()); err != nil {
		t.Fatal(err)
	}
	in.wait()
	w.wrap(in, func(clientv3.Txn) (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrPermissionDenied })
	if err := in.withdraw(t.Context()); err == nil {
		t.Error("no error")
	}
}
