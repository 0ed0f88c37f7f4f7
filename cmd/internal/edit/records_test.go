package edit

import (
	"context"
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

// interrupted is an etcd in which something happens before the second transaction.
type interrupted struct {
	clientv3.KV
	transactions int
	before       func(context.Context) context.Context // of the transaction
}

func (i *interrupted) Txn(ctx context.Context) clientv3.Txn {
	if i.transactions++; i.transactions == 2 {
		ctx = i.before(ctx)
	}
	return i.KV.Txn(ctx)
}

// TestADeletionThatHasBegunIsFinishedOrSaysWhatIsLeft: once records are off their leases, the end of the command's time does not keep them from being
// deleted. If etcd does, the error says that they stay, and the same command deletes them.
func TestADeletionThatHasBegunIsFinishedOrSaysWhatIsLeft(t *testing.T) {
	client := etcdtest.StartProcess(t).Client(t)
	plain := client.KV
	lease, err := client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	remove := func(ctx context.Context, before func(context.Context) context.Context) error {
		t.Helper()
		set, err := Read(t.Context(), client, registry.Name{Namespace: "default", Name: "web"})
		if err != nil {
			t.Fatal(err)
		}
		client.KV = &interrupted{KV: plain, before: before}
		defer func() { client.KV = plain }()
		return Remove(ctx, set, Output{To: new(strings.Builder)})
	}
	for _, etcdIsLost := range []bool{false, true} {
		for key, options := range map[string][]clientv3.OpOption{sliceA: {clientv3.WithLease(lease.ID)}, sliceB: nil} {
			if _, err := plain.Put(t.Context(), key, slice("", `"10.0.0.1"`), options...); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := remove(ctx, func(of context.Context) context.Context {
			cancel()
			if etcdIsLost {
				return ctx
			}
			return of
		})
		if etcdIsLost {
			if err == nil || !strings.Contains(err.Error(), "no lease any more, and then stay until they are deleted: repeat rm") {
				t.Errorf("without etcd: %v", err)
			}
			err = remove(t.Context(), nil)
		}
		if err != nil {
			t.Errorf("etcd is lost: %t: %v", etcdIsLost, err)
		}
		if left, err := plain.Get(t.Context(), registry.Prefix, clientv3.WithPrefix()); err != nil || len(left.Kvs) > 0 {
			t.Errorf("%v are left, %v", left, err)
		}
	}
}

// leasedRecord reads a service that has one record, which belongs to a lease.
func leasedRecord(t *testing.T, client *clientv3.Client) *Set {
	t.Helper()
	lease, err := client.Grant(t.Context(), 600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Put(t.Context(), sliceA, slice("", `"10.0.0.1"`), clientv3.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	set, err := Read(t.Context(), client, registry.Name{Namespace: "default", Name: "web"})
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// TestAFullEtcdDeletesRecordsOfLeases: it refuses the write that takes them off their leases, and what comes of that is said.
func TestAFullEtcdDeletesRecordsOfLeases(t *testing.T) {
	client := etcdtest.StartProcess(t).Client(t)
	set := leasedRecord(t, client)
	alarm := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
	if _, err := etcdserverpb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), alarm); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := Remove(t.Context(), set, Output{To: &out}); err != nil {
		t.Fatal(err)
	}
	if left, err := client.Get(t.Context(), registry.Prefix, clientv3.WithPrefix()); err != nil || len(left.Kvs) > 0 {
		t.Errorf("%v are left, %v", left, err)
	}
	if want := "proxies keep its instance for five minutes"; !strings.Contains(out.String(), "deleted "+sliceA) || !strings.Contains(out.String(), want) {
		t.Errorf("it says %q; want %q", &out, want)
	}
}

// refusing is an etcd that refuses each transaction.
type refusing struct{ clientv3.KV }

func (r refusing) Txn(ctx context.Context) clientv3.Txn { return refusedTxn{r.KV.Txn(ctx)} }

type refusedTxn struct{ clientv3.Txn }

func (t refusedTxn) If(...clientv3.Cmp) clientv3.Txn        { return t }
func (t refusedTxn) Then(...clientv3.Op) clientv3.Txn       { return t }
func (t refusedTxn) Commit() (*clientv3.TxnResponse, error) { return nil, rpctypes.ErrPermissionDenied }

// TestARefusedDeletionSaysNothingOfRecordsWithoutLeases: none was taken off its lease.
func TestARefusedDeletionSaysNothingOfRecordsWithoutLeases(t *testing.T) {
	client := etcdtest.StartProcess(t).Client(t)
	set := leasedRecord(t, client)
	client.KV = refusing{client.KV}
	if err := Remove(t.Context(), set, Output{To: new(strings.Builder)}); err != (CallError{rpctypes.ErrPermissionDenied}) {
		t.Errorf("%v; want the refusal as it is", err)
	}
}

// TestPutLeavesARecordWhoseFieldsNodesWouldReadOtherwiseThanItWrites: they take a name in any letter case, so what it writes would stand beside what counts.
func TestPutLeavesARecordWhoseFieldsNodesWouldReadOtherwiseThanItWrites(t *testing.T) {
	client := etcdtest.StartProcess(t).Client(t)
	const key = registry.SpecsPrefix + "default/web"
	for value, field := range map[string]string{`{"Ports":[{"port":80}]}`: "Ports", `{"port":80,"PORT":81}`: "PORT", `{"Spec":{"ports":[{"port":80}]},"apiVersion":"v1"}`: "Spec"} {
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
		err := Put(t.Context(), client, registry.Name{Namespace: "default", Name: "web"}, Wish{Port: 82}, Output{To: new(strings.Builder)})
		if err == nil || !strings.Contains(err.Error(), `as "`+field+`": edit it by hand`) {
			t.Errorf("%s: %v", value, err)
		}
		if now, err := client.Get(t.Context(), key); err != nil || len(now.Kvs) != 1 || string(now.Kvs[0].Value) != value {
			t.Errorf("%s became %v, %v", value, now, err)
		}
	}
}
