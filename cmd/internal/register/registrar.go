package register

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"

	"kubeproxy/config/etcdsource"
	"kubeproxy/internal/lograte"
)

// A Config says which instance is registered, where and how.
type Config struct {
	Etcd     etcdsource.Config
	Instance Instance
	Check    Check         // nil: the instance always answers
	Interval time.Duration // between two checks
	TTL      time.Duration // of the lease: for how long the record of a dead registrar stays. Seconds; etcd may grant more
	Drain    time.Duration // for how long the record is terminating, at least, before it is deleted

	// Supersede has the instance registered although the service has a record of endpoints and no slices: that record has no effect from then on.
	Supersede bool

	// Gone, if set, is closed when the instance has ended: then the record is deleted at once. After a stop the record is kept,
	// terminating, until then; Drained is called when Drain has passed, and asks the instance to end. It must not block.
	Gone    <-chan struct{}
	Drained func()
}

// A Registrar keeps one instance registered. Make it with [New].
type Registrar struct {
	cfg    Config
	dialer *etcdsource.Dialer
	owner  string // of the record, while it is ours: another for each registrar
	key    string
	log    lograte.Limiter[string]

	// Of the goroutine in Run.
	client      *clientv3.Client // nil: not connected
	lease       clientv3.LeaseID // zero: none
	answers     bool             // the instance does, by the last check
	lost        time.Time        // when the lease was found to be lost, if no check has passed or failed since; else zero
	recheck     chan struct{}    // capacity 1: a check is wanted now
	toldFailing bool             // the log says that it does not
	stopping    bool
	published   bool // the record was ours at some time
	unsure      bool // a write was sent and not answered: the record may be ours
	waiting     bool // the record is another registrar's
	withheld    bool // it is not written, for the service has a record of endpoints that would lose its clients
	untrue      bool // etcd has refused to write that the instance is not ready, and may still hold a record that says it is
	failures    int  // attempts in a row that failed

	orphan      int64     // revision of the record at the last look at one without a lease; zero: there was none
	orphanSince time.Time // when that revision was seen first
}

// New returns a registrar that has not begun. It checks the configuration and touches no network.
func New(cfg Config) (*Registrar, error) {
	if err := cfg.Instance.Validate(); err != nil {
		return nil, err
	}
	dialer, err := etcdsource.NewDialer(cfg.Etcd)
	if err != nil {
		return nil, err
	}
	return &Registrar{cfg: cfg, dialer: dialer, owner: rand.Text(), key: cfg.Instance.Key(), recheck: make(chan struct{}, 1), log: lograte.Limiter[string]{Last: 5 * time.Minute}}, nil
}

// Run registers the instance, and keeps it registered until ctx ends or the instance is gone. Before it returns it deletes the record.
// If etcd cannot be reached then, the record disappears with its lease. Run is called once.
func (r *Registrar) Run(ctx context.Context) {
	defer r.dialer.Close()
	defer r.disconnect()
	checks := make(chan result)
	checking, stop := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(checking, r.cfg.Check, r.cfg.Interval, r.recheck, checks)
	}()
	defer func() { stop(); <-done }()

	timer := time.NewTimer(0)
	defer timer.Stop()
	end := ctx.Done()
	var over <-chan time.Time // the drain is
	for {
		select {
		case <-timer.C:
		case c := <-checks:
			if !r.checked(c) {
				continue
			}
		case <-end:
			end, r.stopping = nil, true
			over = time.After(r.drain())
		case <-over:
			if r.cfg.Gone == nil {
				r.leave(ctx)
				return
			}
			over = nil
			r.cfg.Drained()
		case <-r.cfg.Gone:
			r.leave(ctx)
			return
		}
		timer.Reset(r.reconcile(ctx))
	}
}

// drain returns for how long clients are given time to go elsewhere. The record of another registrar, or none, sends no client here.
func (r *Registrar) drain() time.Duration {
	if !r.unsure && (!r.published || r.waiting) {
		glog.Infof("%s: stopping", r.key)
		return 0
	}
	glog.Infof("%s: stopping; new clients go elsewhere for %v", r.key, r.cfg.Drain)
	return r.cfg.Drain
}

// checked handles the result of a check, and reports whether there is something to write: it differs from the last one, or it was
// waited for.
func (r *Registrar) checked(c result) (news bool) {
	answers, err := c.err == nil, c.err
	awaited := !r.lost.IsZero() && c.began.After(r.lost)
	if awaited {
		r.lost = time.Time{}
	}
	switch {
	case answers == r.answers && (answers || r.toldFailing):
		return awaited
	case answers:
		glog.V(1).Infof("%s: the check passes", r.key)
	case r.answers:
		glog.Warningf("%s: the check fails: %v; no new clients until it passes", r.key, err)
	default:
		glog.Warningf("%s: the check fails: %v; the instance is not registered yet", r.key, err)
	}
	news, r.answers, r.toldFailing = awaited || answers != r.answers, answers, !answers
	return news
}

// The times of an attempt. One that fails and the pause after it take 4 s at most: so long may a registrar take to see that etcd is back.
const (
	requestTimeout = 2 * time.Second
	firstPause     = 100 * time.Millisecond
	lastPause      = 2 * time.Second
	waitingPause   = time.Second // between looks at another registrar's record
	withheldPause  = time.Second // between looks at a record of endpoints
)

// attempt bounds an attempt. It goes on after a stop: there is still something to delete.
func attempt(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(context.WithoutCancel(ctx), requestTimeout, fmt.Errorf("no answer for %v", requestTimeout))
}

// reconcile makes the registry say what it should, and returns when to look again.
func (r *Registrar) reconcile(ctx context.Context) (again time.Duration) {
	ctx, cancel := attempt(ctx)
	defer cancel()
	var err error
	switch {
	case r.answers || r.mayHaveWritten():
		err = r.publish(ctx)
	case r.toldFailing: // an instance whose check has only failed has no record, and gets none
		err = r.withdraw(ctx)
	}
	if err != nil {
		return r.failed(err)
	}
	if r.failures > 0 {
		glog.Infof("%s: etcd answers again", r.key)
		r.failures = 0
	}
	switch {
	case r.withheld:
		return withheldPause
	case r.waiting:
		return waitingPause
	}
	return r.cfg.TTL / 3
}

// mayHaveWritten reports whether the record has been ours, as far as is known.
func (r *Registrar) mayHaveWritten() bool { return r.published || r.unsure }

// read returns the record as it is; nil if there is none.
func (r *Registrar) read(ctx context.Context) (*mvccpb.KeyValue, error) {
	if err := r.connect(ctx); err != nil {
		return nil, err
	}
	resp, err := r.client.Get(ctx, r.key)
	if err != nil {
		return nil, fmt.Errorf("read the record: %w", r.dialer.Explain(ctx, err))
	}
	if len(resp.Kvs) == 0 {
		r.orphan = 0
		return nil, nil
	}
	if resp.Kvs[0].Lease != 0 {
		r.orphan = 0
	}
	return resp.Kvs[0], nil
}

// failed handles an attempt that failed: the next one has a new connection. It returns when that is due.
func (r *Registrar) failed(err error) (again time.Duration) {
	r.failures++
	r.orphan = 0 // while etcd is away, no other registrar can write the record, either
	if note, ok := r.log.Allow(err.Error()); ok {
		glog.Warningf("%s: %v; trying again%s", r.key, err, note)
	}
	r.disconnect()
	return min(firstPause<<min(r.failures, 10), lastPause)
}

func (r *Registrar) disconnect() {
	if r.client != nil {
		_ = r.client.Close() // it only says that it has ended
		r.client = nil
	}
}

func (r *Registrar) connect(ctx context.Context) (err error) {
	if r.client == nil {
		r.client, err = r.dialer.Dial(ctx)
	}
	return err
}

// publish makes the record say what it should. An etcd that is full refuses that. If the instance is not ready, its record is then deleted, which a
// full etcd accepts, or else expires with its lease: clients must not be sent here for as long as etcd is full.
func (r *Registrar) publish(ctx context.Context) error {
	if err := r.connect(ctx); err != nil {
		return err
	}
	err := r.update(ctx)
	switch {
	case err == nil:
		r.untrue = false
		return nil
	case r.state() == ready || !IsRefusal(err):
		return err
	case r.isAsWanted(ctx):
		r.untrue = false
		return nil // only the same again was refused
	}
	r.untrue = true
	if left := r.withdraw(ctx); left != nil {
		return fmt.Errorf("%w; %s: %w", err, r.remainder(), left)
	}
	return fmt.Errorf("%w; so it has no record now", err)
}

// isAsWanted reports whether the record is known to say what it should, and to belong to the lease.
func (r *Registrar) isAsWanted(ctx context.Context) bool {
	kv, err := r.read(ctx)
	return err == nil && kv != nil && r.isCurrent(kv)
}

func (r *Registrar) isCurrent(kv *mvccpb.KeyValue) bool {
	return kv.Lease == int64(r.lease) && bytes.Equal(kv.Value, r.value())
}

// value is what the record should be now.
func (r *Registrar) value() []byte { return r.cfg.Instance.record(r.owner, r.state()) }

// update makes sure that the lease lives, and that the record says what it should and belongs to the lease.
func (r *Registrar) update(ctx context.Context) error {
	if err := r.withhold(ctx); err != nil || r.withheld {
		return err
	}
	if err := r.extendLease(ctx); err != nil {
		return err
	}
	if !r.lost.IsZero() {
		return nil
	}
	if err := r.grantLease(ctx); err != nil {
		return err
	}
	put := clientv3.OpPut(r.key, string(r.value()), clientv3.WithLease(r.lease))
	for {
		resp, err := r.write(ctx, r.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(r.key), "=", 0)).Then(put).Else(clientv3.OpGet(r.key)))
		if err != nil {
			return err
		}
		if resp.Succeeded {
			r.wrote(ctx)
			return nil
		}
		kv := resp.Responses[0].GetResponseRange().Kvs[0]
		if r.isCurrent(kv) {
			r.wrote(ctx) // perhaps by a write whose answer was lost
			return nil
		}
		if !r.mayReplace(kv) {
			return nil
		}
		replaced, err := r.write(ctx, r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.key), "=", kv.ModRevision)).Then(put))
		if err != nil {
			return err
		}
		if replaced.Succeeded {
			r.wrote(ctx)
			return nil
		} // else another registrar wrote it just now: look again
	}
}

// write sends a write of the record. One that was not answered may have taken effect: until the next answer, the record may be ours.
func (r *Registrar) write(ctx context.Context, txn clientv3.Txn) (*clientv3.TxnResponse, error) {
	before := r.unsure
	r.unsure = true
	resp, err := txn.Commit()
	switch {
	case err == nil:
		r.unsure = false
		return resp, nil
	case IsRefusal(err):
		r.unsure = before // this write did nothing; one before it may have
	}
	return nil, fmt.Errorf("write the record: %w", r.dialer.Explain(ctx, err))
}

// IsRefusal reports whether an error is the answer of an etcd that did nothing. A timeout is none, also if etcd reports it.
func IsRefusal(err error) bool {
	etcds, ok := errors.AsType[rpctypes.EtcdError](rpctypes.Error(err))
	if !ok {
		return false
	}
	switch etcds.Code() {
	case codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument, codes.NotFound, codes.ResourceExhausted:
		return true
	}
	return false
}

// wrote records that the record is ours.
func (r *Registrar) wrote(ctx context.Context) {
	if !r.published || r.waiting {
		glog.Infof("%s: registered at %v, ports %v, with a lease of %v", r.key, r.cfg.Instance.Address, r.cfg.Instance.Ports, r.cfg.TTL)
		r.warnOfService(ctx)
	}
	r.published, r.waiting = true, false
}

// state is what the record should say now.
func (r *Registrar) state() state {
	switch {
	case !r.answers:
		return failing
	case r.stopping:
		return terminating
	}
	return ready
}

// isOurs reports whether no other registrar keeps the record. Each one writes with a lease, so a record without one was written by hand or put
// back from a dump. It never expires, and says what it says for ever unless we treat it as our own. If we have written nothing, another registrar
// may be about to write it anew.
func (r *Registrar) isOurs(kv *mvccpb.KeyValue) bool {
	owner, _ := readOwner(kv.Value)
	return owner == r.owner || kv.Lease == 0 && (r.mayHaveWritten() || r.isOrphaned(kv))
}

// isOrphaned reports whether a record without a lease has stayed as it is for so long that a registrar which lives would have written it anew. If that
// has lost its lease, it checks its instance first.
func (r *Registrar) isOrphaned(kv *mvccpb.KeyValue) bool {
	if kv.ModRevision != r.orphan {
		r.orphan, r.orphanSince = kv.ModRevision, time.Now()
	}
	return time.Since(r.orphanSince) >= r.cfg.TTL+requestTimeout+lastPause
}

// mayReplace reports whether the record, as it is, is ours to write. Another registrar's record is, once: the one that was
// started last wins. Later it is only while the other one has no instance to offer, because it stops or its check fails.
func (r *Registrar) mayReplace(kv *mvccpb.KeyValue) bool {
	_, now := readOwner(kv.Value)
	if r.isOurs(kv) || r.state() == ready && (!r.published || now != ready) {
		return true
	}
	if !r.waiting {
		glog.Infof("%s: another registrar has published this instance; waiting until it stops", r.key)
	}
	r.waiting = true
	return false
}

// extendLease extends the lease, if there is one and its record is not known to be untrue. If etcd no longer knows it, the last check may be as old
// as the lease: this process was paused, or this machine. So nothing is written before another check.
func (r *Registrar) extendLease(ctx context.Context) error {
	if r.lease == 0 || r.untrue && r.state() != ready {
		return nil
	}
	_, err := r.client.KeepAliveOnce(ctx, r.lease)
	if err == nil {
		return nil
	}
	if !errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("extend the lease: %w", r.dialer.Explain(ctx, err))
	}
	glog.Warningf("%s: the lease has expired; registering again", r.key)
	r.lease = 0
	if r.cfg.Check != nil {
		r.lost = time.Now()
		select {
		case r.recheck <- struct{}{}:
		default:
		}
	}
	return nil
}

// grantLease makes sure that there is a lease.
func (r *Registrar) grantLease(ctx context.Context) error {
	if r.lease != 0 {
		return nil
	}
	grant, err := r.client.Grant(ctx, int64((r.cfg.TTL+time.Second-1)/time.Second)) // etcd counts seconds
	if err != nil {
		return fmt.Errorf("grant a lease: %w", r.dialer.Explain(ctx, err))
	}
	r.lease = grant.ID
	return nil
}

// withdraw deletes the record, if it is ours, and the lease.
func (r *Registrar) withdraw(ctx context.Context) error {
	kv, err := r.read(ctx)
	if err != nil {
		return err
	}
	if kv != nil && r.isOurs(kv) {
		if !r.mayHaveWritten() {
			glog.Infof("%s: deleting the record: it has no lease, and no registrar keeps it", r.key)
		}
		if err := r.remove(ctx, kv); err != nil {
			return fmt.Errorf("delete the record: %w", r.dialer.Explain(ctx, err))
		}
	}
	if r.lease == 0 {
		return nil
	}
	if _, err := r.client.Revoke(ctx, r.lease); err != nil && !errors.Is(rpctypes.Error(err), rpctypes.ErrLeaseNotFound) {
		return fmt.Errorf("revoke the lease: %w", r.dialer.Explain(ctx, err))
	}
	r.lease = 0
	return nil
}

// remove deletes a record of ours, unless another registrar writes it just now. The record says first that it is not to be used: a proxy takes the
// sudden end of a record with a ready instance for the end of a lease, and would go on trying the last one of a service. A full etcd refuses that
// write, and accepts the deletion.
func (r *Registrar) remove(ctx context.Context, kv *mvccpb.KeyValue) error {
	revision := kv.ModRevision
	for _, last := range []clientv3.Op{
		clientv3.OpPut(r.key, string(r.cfg.Instance.record(r.owner, failing)), clientv3.WithIgnoreLease()),
		clientv3.OpDelete(r.key),
	} {
		resp, err := r.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(r.key), "=", revision)).Then(last).Commit()
		switch {
		case IsRefusal(err) && (last.IsPut() || r.lease != 0 && kv.Lease == int64(r.lease)):
			continue // to the deletion, or to the end of the lease, which deletes the record, too
		case err != nil:
			return err
		case !resp.Succeeded:
			return nil
		}
		revision = resp.Header.Revision
	}
	return nil
}

// leave deletes the record at the end. It tries for a while: then the lease does it. A registrar that has written nothing tries once.
func (r *Registrar) leave(ctx context.Context) {
	until := time.Now()
	if r.mayHaveWritten() || r.lease != 0 {
		until = until.Add(2 * requestTimeout)
	}
	for {
		once, cancel := attempt(ctx)
		err := r.withdraw(once)
		cancel()
		if err == nil {
			glog.Infof("%s: no longer registered", r.key)
			return
		}
		r.disconnect()
		if time.Now().After(until) {
			glog.Warningf("%s: %v; %s", r.key, err, r.remainder())
			return
		}
		time.Sleep(firstPause)
	}
}

// remainder says what becomes of a record that cannot be deleted.
func (r *Registrar) remainder() string {
	if r.lease == 0 {
		return "if etcd holds a record without a lease, it stays"
	}
	return fmt.Sprintf("the record stays until its lease expires, for at most %v", r.cfg.TTL)
}
