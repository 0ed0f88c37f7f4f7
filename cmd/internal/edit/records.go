package edit

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/register"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// A CallError is an error of a call.
type CallError struct{ Err error }

func (e CallError) Error() string { return e.Err.Error() }

// A Set is the records of one service.
type Set struct {
	client   *clientv3.Client
	service  registry.Name
	revision int64
	keys     []*mvccpb.KeyValue // its Service records, then its slices, then its Endpoints records
}

// Read reads the records of a service, of which there is one at least.
func Read(ctx context.Context, client *clientv3.Client, service registry.Name) (*Set, error) {
	set, err := read(ctx, client, service)
	if err == nil && len(set.keys) == 0 {
		return nil, fmt.Errorf("etcd holds no record of %s (a service of another namespace is NAMESPACE/NAME)", service.Label())
	}
	return set, err
}

// read reads the records of a service at one revision: in namespace default v0.4's keys, too.
func read(ctx context.Context, client *clientv3.Client, service registry.Name) (*Set, error) {
	path := service.Namespace + "/" + service.Name
	ops := []clientv3.Op{
		clientv3.OpGet(registry.SpecsPrefix + path),
		clientv3.OpGet(registry.EndpointSlicesPrefix+service.Namespace+"/", clientv3.WithPrefix()),
		clientv3.OpGet(registry.EndpointsPrefix + path),
	}
	if service.Namespace == registry.DefaultNamespace {
		ops = slices.Insert(ops, 1, clientv3.OpGet(registry.SpecsPrefix+service.Name))
		ops = append(ops, clientv3.OpGet(registry.EndpointsPrefix+service.Name))
	}
	resp, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return nil, CallError{err}
	}
	set := &Set{client: client, service: service, revision: resp.Header.Revision}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			if isOf(service, kv) {
				set.keys = append(set.keys, kv)
			}
		}
	}
	return set, nil
}

// isOf reports whether a record is one of a service. A slice names its service; of the other records the key does, which was asked for.
func isOf(service registry.Name, kv *mvccpb.KeyValue) bool {
	key, err := registry.ParseKey(string(kv.Key))
	if err != nil || key.Kind != registry.KindEndpointSlice {
		return err == nil
	}
	record, _, err := decode.Decode(string(kv.Key), kv.Value)
	return err == nil && record.Slice.ServiceName() == service
}

// Print prints a line for each record: its key, when it was written, how long its lease lasts, and what it holds.
func Print(ctx context.Context, set *Set, out Output) error {
	table, names, sliced := out.table(true), set.portNames(), set.isSliced()
	for _, kv := range set.keys {
		r := describe(kv, names)
		if kv.Lease != 0 {
			left, err := set.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return CallError{err}
			}
			r.Lease = new(max(left.TTL, 0))
		}
		if sliced && strings.HasPrefix(r.Key, registry.EndpointsPrefix) {
			for i := range r.Holds {
				r.Holds[i] += " (not used: there are endpoint slices)"
			}
		}
		if err := table.add(r); err != nil {
			return err
		}
	}
	return table.flush()
}

// isSliced reports whether the endpoints of the service are in slices. Then those of Endpoints records do not count.
func (set *Set) isSliced() bool {
	return slices.ContainsFunc(set.keys, func(kv *mvccpb.KeyValue) bool {
		return strings.HasPrefix(string(kv.Key), registry.EndpointSlicesPrefix)
	})
}

// portNames returns the names of the service's ports; nil if no record says which it has.
func (set *Set) portNames() map[string]bool {
	var names map[string]bool
	for _, kv := range set.keys {
		record, _, err := decode.Decode(string(kv.Key), kv.Value)
		if err != nil || record.Service == nil {
			continue
		}
		if names == nil {
			names = make(map[string]bool)
		}
		for _, p := range record.Service.Ports {
			names[p.Name] = true
		}
	}
	return names
}

// describe says what a record holds, fit for a terminal: the author of a record chooses the names of keys and ports. Endpoints of other ports than the named ones are of no use.
func describe(kv *mvccpb.KeyValue, names map[string]bool) *Record {
	r := &Record{Key: string(kv.Key), Revision: kv.ModRevision, Holds: []string{}}
	record, warnings, err := decode.Decode(r.Key, kv.Value)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	switch {
	case record.Service != nil:
		for _, p := range record.Service.Ports {
			r.Holds = append(r.Holds, strings.TrimSpace(registry.Label(p.Name)+" "+p.ID().Short()))
		}
	case record.Endpoints != nil:
		r.Holds = append(r.Holds, addresses(record.Endpoints.ByPort, names, "")...)
	default:
		r.Holds = append(r.Holds, addresses(record.Slice.Ready, names, "")...)
		r.Holds = append(r.Holds, addresses(record.Slice.Terminating, names, " (terminating)")...)
		if node := register.NodeOf(kv.Value); node != "" && len(r.Holds) > 0 {
			r.Holds = append(r.Holds, "on "+registry.Label(node))
		}
	}
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, string(w))
	}
	return r
}

// maxShown is how many addresses of a port a line shows.
const maxShown = 10

func addresses(byPort []registry.PortAddrs, names map[string]bool, state string) (parts []string) {
	for _, p := range byPort {
		state := state
		if names != nil && !names[p.Port] {
			state += " (not used: the service has no port of this name)"
		}
		shown := 0
		for a := range p.Addrs.All() {
			if shown == maxShown {
				parts = append(parts, fmt.Sprintf("and %d more", p.Addrs.Len()-shown))
				break
			}
			parts = append(parts, strings.TrimSpace(registry.Label(p.Port)+" "+registry.Label(a.String()))+state)
			shown++
		}
	}
	return parts
}

// maxDeletes is how many records are deleted in one transaction. Etcd allows 128 (--max-txn-ops).
const maxDeletes = 100

// Remove deletes the records, unless one of them has changed since they were read, and prints their keys. A signal to end is an end of ctx.
func Remove(ctx context.Context, set *Set, out Output) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	for part := range slices.Chunk(set.keys, maxDeletes) {
		revision, sudden, err := remove(ctx, set.client, part)
		if err != nil {
			return err
		}
		for _, kv := range part {
			change := Change{Did: deleted, Key: string(kv.Key), Revision: revision}
			if sudden && kv.Lease != 0 {
				change.Note = "etcd is full, so it was not taken off its lease first: if it was the last of the service, proxies keep its instance for five minutes"
			}
			if err := out.print(change); err != nil {
				return err
			}
		}
	}
	return nil
}

// lastCall is how long the deletion of records may take that are off their leases, also after the end of a command's time.
const lastCall = 5 * time.Second

// remove deletes records, and returns the revision of that, and whether it was sudden: records of leases were on them until then.
//
// Records that belong to leases are taken off them first, in a transaction of their own. To proxies the deletion would look like the end
// of a lease otherwise, after which they keep the last instances of a service. Between the two, no lease ends the record of an instance that is dead.
// A full etcd refuses to take them off, and accepts a sudden deletion.
func remove(ctx context.Context, client *clientv3.Client, part []*mvccpb.KeyValue) (revision int64, sudden bool, err error) {
	var unchanged []clientv3.Cmp
	var takeOff, deletes []clientv3.Op
	for _, kv := range part {
		unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision))
		deletes = append(deletes, clientv3.OpDelete(string(kv.Key)))
		if kv.Lease != 0 {
			takeOff = append(takeOff, clientv3.OpPut(string(kv.Key), string(kv.Value)))
		}
	}
	if len(takeOff) == 0 {
		revision, err = commit(ctx, client, unchanged, deletes)
		return revision, false, err
	}
	revision, err = commit(ctx, client, unchanged, takeOff)
	switch call, isCall := errors.AsType[CallError](err); {
	case isCall && errors.Is(rpctypes.Error(call.Err), rpctypes.ErrNoSpace):
		revision, err = commit(ctx, client, unchanged, deletes)
		return revision, true, err
	case isCall && !register.IsRefusal(call.Err):
		return 0, false, withoutLeases(err)
	case err != nil:
		return 0, false, err
	}
	for i, kv := range part {
		if kv.Lease != 0 {
			unchanged[i] = clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", revision)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastCall)
	defer cancel()
	if revision, err = commit(last, client, unchanged, deletes); err != nil {
		return 0, false, withoutLeases(err)
	}
	return revision, false, nil
}

// withoutLeases adds to an error what may have become of the records. It is a CallError no more, whose explanation would take the place of that.
func withoutLeases(err error) error {
	return fmt.Errorf("%v; records may have no lease any more, and then stay until they are deleted: repeat rm", err)
}

// commit makes a transaction of operations if the records are as they were, and returns its revision.
func commit(ctx context.Context, client *clientv3.Client, unchanged []clientv3.Cmp, ops []clientv3.Op) (int64, error) {
	resp, err := client.Txn(ctx).If(unchanged...).Then(ops...).Commit()
	if err != nil {
		return 0, CallError{err}
	}
	if !resp.Succeeded {
		return 0, errors.New("a record has changed meanwhile: look again, and repeat")
	}
	return resp.Header.GetRevision(), nil
}
