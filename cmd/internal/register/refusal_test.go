package register

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// raiseAlarm has etcd refuse writes, as it does when its database has reached the quota.
func (w *world) raiseAlarm() {
	w.t.Helper()
	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(w.c.ActiveConnection()).Alarm(w.t.Context(), alarm); err != nil {
		w.t.Fatal(err)
	}
}

// clearAlarm has etcd accept writes again.
func (w *world) clearAlarm() {
	w.t.Helper()
	if _, err := w.c.AlarmDisarm(w.t.Context(), &clientv3.AlarmMember{}); err != nil {
		w.t.Fatal(err)
	}
}

// A full etcd refuses the record that says that the instance fails, and accepts its deletion: clients are not sent to that instance for ever. An
// instance that answers keeps its record.
func TestAFullEtcdOffersNoInstanceThatFails(t *testing.T) {
	w := newWorld(t)
	in := w.register(w.etcd.URL(), func(c *Config) { c.TTL = time.Hour }) // the end of the lease does not help
	w.untilOwned(in)
	w.raiseAlarm()
	in.fails.Store(true)
	w.untilAbsent(in.key)
	in.fails.Store(false)
	w.clearAlarm()
	w.untilOwned(in)
}

func TestAFullEtcdKeepsAnInstanceThatAnswers(t *testing.T) {
	w := newWorld(t)
	in := w.byHand()
	in.cfg.TTL = time.Hour // the lease does not end during the test
	w.reconcile(in, true)
	w.raiseAlarm()
	for range 2 {
		if err := in.connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		extended := 0
		in.client.Lease = watchedLease{in.client.Lease, &extended, nil}
		w.reconcile(in, false)
		if in.failures = 0; extended != 1 {
			t.Errorf("the lease was extended %d times; want once", extended)
		}
	}
	if r := w.now(in.key); r == nil || r.now != ready {
		t.Errorf("the record is %+v; want it ready", r)
	}
	in.leave(t.Context())
}

// The last record of an instance that stops is true, and nothing else needs to be written: a refusal does not end the drain.
func TestAFullEtcdKeepsARecordThatIsTrue(t *testing.T) {
	w := newWorld(t)
	in := w.byHand()
	in.cfg.TTL = time.Hour // the lease does not end during the test
	w.reconcile(in, true)
	in.stopping = true
	w.reconcile(in, true)
	w.raiseAlarm()
	w.reconcile(in, true)
	if r := w.now(in.key); r == nil || r.now != terminating {
		t.Errorf("the record is %+v; want it terminating", r)
	}
	in.leave(t.Context())
}

// A full etcd does not let a record be called not ready. One that no registrar keeps is deleted all the same.
func TestAFullEtcdDeletesARecordWithoutALeaseOfAnInstanceThatFails(t *testing.T) {
	w := newWorld(t)
	in := w.unchecked()
	w.putBack(in)
	w.raiseAlarm()
	in.checked(result{err: errors.New("it does not answer")})
	w.reconcile(in, true)
	in.wait()
	w.reconcile(in, true)
	if r := w.now(in.key); r != nil {
		t.Errorf("the record is %+v; want none", r)
	}
}

// The command has ended: its record is deleted, though etcd is full.
func TestAFullEtcdDeletesTheRecordOfAnInstanceThatHasEnded(t *testing.T) {
	w := newWorld(t)
	gone := make(chan struct{})
	in := w.register(w.etcd.URL(), func(c *Config) { c.Gone, c.TTL = gone, time.Hour })
	lease := w.untilOwned(in).lease
	w.raiseAlarm()
	close(gone)
	<-in.over
	if r := w.now(in.key); r != nil {
		t.Errorf("the record is %+v after the registrar has left; want none", r)
	}
	if left, err := w.c.TimeToLive(t.Context(), clientv3.LeaseID(lease)); err != nil || left.TTL > 0 {
		t.Errorf("the lease lives on: %+v, %v", left, err)
	}
}

// Etcd refuses each write and deletion of the record. The end of the lease deletes it, too. Etcd refuses that only to a user without the permission
// to write its keys.
func TestALeaseIsRevokedWhenTheDeletionIsRefused(t *testing.T) {
	w := newWorld(t)
	in := w.byHand()
	in.cfg.TTL = time.Hour // the lease does not end during the test
	w.reconcile(in, true)
	w.wrap(in, func(clientv3.Txn) (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrNoSpace })
	if err := in.withdraw(t.Context()); err != nil {
		t.Error(err)
	}
	if r := w.now(in.key); r != nil {
		t.Errorf("the record is %+v; want none", r)
	}
}

// A user that may no longer write cannot delete the record either. It does not extend the lease, which not every version of
// etcd refuses.
func TestALeaseIsNotExtendedForARecordThatCannotBeMadeTrue(t *testing.T) {
	w := newWorld(t)
	in := w.byHand()
	in.cfg.TTL = time.Hour // the lease does not end during the test
	w.reconcile(in, true)
	attempt := func(err error, want int) {
		t.Helper()
		extended := 0
		w.wrap(in, func(txn clientv3.Txn) (*clientv3.TxnResponse, error) {
			if err != nil {
				return nil, err
			}
			return txn.Commit()
		})
		in.client.Lease = watchedLease{in.client.Lease, &extended, err}
		w.reconcile(in, err == nil)
		if in.failures = 0; extended != want {
			t.Errorf("%v: the lease was extended %d times; want %d", err, extended, want)
		}
	}
	in.checked(result{err: errors.New("it does not answer")})
	attempt(rpctypes.ErrPermissionDenied, 1) // the refusal comes after that
	attempt(rpctypes.ErrPermissionDenied, 0)
	attempt(nil, 0)
	if r := w.now(in.key); r == nil || r.now != failing {
		t.Errorf("the record is %+v with the permission back; want one that is for nobody", r)
	}
	attempt(nil, 1)
	in.leave(t.Context())
}

// A watchedLease counts how often a lease was extended. With an error, it cannot be revoked.
type watchedLease struct {
	clientv3.Lease
	extended *int
	err      error
}

func (l watchedLease) KeepAliveOnce(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseKeepAliveResponse, error) {
	*l.extended++
	return l.Lease.KeepAliveOnce(ctx, id)
}

func (l watchedLease) Revoke(ctx context.Context, id clientv3.LeaseID) (*clientv3.LeaseRevokeResponse, error) {
	if l.err != nil {
		return nil, l.err
	}
	return l.Lease.Revoke(ctx, id)
}
