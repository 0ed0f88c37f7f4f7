package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/register"
	"kubeproxy/config/etcdsource"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// recordOptions is what "kube-proxy get" and "kube-proxy rm" were asked for.
type recordOptions struct {
	options // of these etcd and the version
	timeout time.Duration
	service serviceValue

	word, summary string
	do            func(context.Context, *recordSet, io.Writer) error
}

// flagsForRecords are the flags that make a difference. The others of the proxy are taken and do nothing, so that the file of -config of
// a node can be given as it is.
var flagsForRecords = []string{
	"help", "version", "config", "timeout", "etcd_servers", "etcd_config", "etcd_version", "etcd_cafile", "etcd_certfile", "etcd_keyfile",
	"etcd_insecure_skip_tls_verify", "etcd_username", "etcd_password_file",
}

// newGet is for "kube-proxy get", which prints what etcd holds about a service.
func newGet() *recordOptions {
	return newRecordOptions("get", "prints the records that etcd holds of a service", printRecords)
}

// newRemove is for "kube-proxy rm", which deletes what etcd holds about a service.
func newRemove() *recordOptions {
	return newRecordOptions("rm", "deletes the records that etcd holds of a service", removeRecords)
}

func newRecordOptions(word, summary string, do func(context.Context, *recordSet, io.Writer) error) *recordOptions {
	return &recordOptions{options: *defaults(), timeout: 10 * time.Second, word: word, summary: summary, do: do}
}

func (o *recordOptions) commandLine() *commandline.Command {
	c := commandline.New("kube-proxy "+o.word, "SERVICE", o.summary, o.examine)
	o.addFlags(c)
	c.Group(commandline.General, func(f *pflag.FlagSet) {
		f.Var(commandline.Positive(&o.timeout), "timeout", "how long to wait for etcd, in all")
	})
	c.Show(flagsForRecords)
	return c
}

// execute is the program when its first argument is the word: without that word.
func (o *recordOptions) execute(args []string, stdout, stderr io.Writer) int {
	if status, done := begin(o.commandLine(), args, stdout, stderr); done {
		return status
	}
	if err := o.run(stdout); err != nil {
		fmt.Fprintf(stderr, "kube-proxy %s: %v\n", o.word, err)
		return exitFailed
	}
	return exitDone
}

// examine looks at the arguments, and whether the flags go together.
func (o *recordOptions) examine(flags *pflag.FlagSet) error {
	if err := o.readConfig(flags); err != nil {
		return err
	}
	switch {
	case flags.NArg() == 0:
		return errors.New("no service: give NAME or NAMESPACE/NAME")
	case flags.NArg() > 1:
		return fmt.Errorf("unexpected argument: %s (one service at a time; flags come before it)", commandline.OneLine(flags.Arg(1)))
	}
	if err := o.service.Set(flags.Arg(0)); err != nil {
		return fmt.Errorf("invalid service %s: %w", commandline.OneLine(flags.Arg(0)), err)
	}
	return o.source.etcd.contradictionOfWriter()
}

func (o *recordOptions) run(stdout io.Writer) error {
	cfg, err := o.source.etcd.config(0)
	if err != nil {
		return err
	}
	dialer, err := etcdsource.NewDialer(cfg)
	if err != nil {
		return err
	}
	defer dialer.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), o.timeout, fmt.Errorf("no answer for %v", o.timeout))
	defer cancel()
	client, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	set, err := readRecords(ctx, client, registry.Name(o.service))
	if err == nil {
		err = o.do(ctx, set, stdout)
	}
	if failed, ok := errors.AsType[etcdError](err); ok {
		return dialer.Explain(ctx, failed.error)
	}
	return err
}

// An etcdError is an error of a call.
type etcdError struct{ error }

// A recordSet is the records of one service.
type recordSet struct {
	client   *clientv3.Client
	service  registry.Name
	revision int64
	keys     []*mvccpb.KeyValue // its Service records, then its slices, then its Endpoints records
}

// readRecords reads the records of a service at one revision: in namespace default v0.4's keys, too.
func readRecords(ctx context.Context, client *clientv3.Client, service registry.Name) (*recordSet, error) {
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
		return nil, etcdError{err}
	}
	set := &recordSet{client: client, service: service, revision: resp.Header.Revision}
	for _, r := range resp.Responses {
		for _, kv := range r.GetResponseRange().Kvs {
			if isOf(service, kv) {
				set.keys = append(set.keys, kv)
			}
		}
	}
	if len(set.keys) == 0 {
		return nil, fmt.Errorf("etcd holds no record of %s (a service of another namespace is NAMESPACE/NAME)", service.Label())
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

// printRecords prints a line for each record: its key, when it was written, how long its lease lasts, and what it holds.
func printRecords(ctx context.Context, set *recordSet, w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RECORD\tREVISION\tLEASE\tHOLDS")
	names := set.portNames()
	sliced := slices.ContainsFunc(set.keys, func(kv *mvccpb.KeyValue) bool {
		return strings.HasPrefix(string(kv.Key), registry.EndpointSlicesPrefix)
	})
	for _, kv := range set.keys {
		lease := "-"
		if kv.Lease != 0 {
			left, err := set.client.TimeToLive(ctx, clientv3.LeaseID(kv.Lease))
			if err != nil {
				return etcdError{err}
			}
			lease = (time.Duration(max(left.TTL, 0)) * time.Second).String()
		}
		what := holds(kv, names)
		if sliced && strings.HasPrefix(string(kv.Key), registry.EndpointsPrefix) {
			what += " (not used: there are endpoint slices)"
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", registry.Label(string(kv.Key)), kv.ModRevision, lease, what)
	}
	return table.Flush()
}

// portNames returns the names of the service's ports; nil if no record says which it has.
func (set *recordSet) portNames() map[string]bool {
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

// holds says in one line what a record holds, fit for a terminal: the author of a record chooses the names of keys and ports. Endpoints of other ports than the named ones are of no use.
func holds(kv *mvccpb.KeyValue, names map[string]bool) string {
	record, warnings, err := decode.Decode(string(kv.Key), kv.Value)
	if err != nil {
		return "error: " + err.Error()
	}
	var parts []string
	switch {
	case record.Service != nil:
		for _, p := range record.Service.Ports {
			parts = append(parts, strings.TrimSpace(fmt.Sprintf("%s %s %d", registry.Label(p.Name), strings.ToLower(p.Protocol.String()), p.Number)))
		}
	case record.Endpoints != nil:
		parts = addresses(record.Endpoints.ByPort, names, "")
	default:
		parts = append(addresses(record.Slice.Ready, names, ""), addresses(record.Slice.Terminating, names, " (terminating)")...)
		if node := register.NodeOf(kv.Value); node != "" && len(parts) > 0 {
			parts = append(parts, "on "+registry.Label(node))
		}
	}
	for _, w := range warnings {
		parts = append(parts, "warning: "+string(w))
	}
	return cmp.Or(strings.Join(parts, ", "), "nothing")
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

// removeRecords deletes the records, unless one of them has changed since they were read, and prints their keys.
//
// Records that belong to leases are taken off them first, in a transaction of their own. To proxies the deletion would look like the end
// of a lease otherwise, after which they keep the last instances of a service.
func removeRecords(ctx context.Context, set *recordSet, w io.Writer) error {
	for part := range slices.Chunk(set.keys, maxDeletes) {
		var unchanged []clientv3.Cmp
		var takeOff, deletes []clientv3.Op
		for _, kv := range part {
			unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision))
			deletes = append(deletes, clientv3.OpDelete(string(kv.Key)))
			if kv.Lease != 0 {
				takeOff = append(takeOff, clientv3.OpPut(string(kv.Key), string(kv.Value)))
			}
		}
		if len(takeOff) > 0 {
			revision, err := commit(ctx, set.client, unchanged, takeOff)
			if err != nil {
				return err
			}
			for i, kv := range part {
				if kv.Lease != 0 {
					unchanged[i] = clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", revision)
				}
			}
		}
		if _, err := commit(ctx, set.client, unchanged, deletes); err != nil {
			return err
		}
		for _, kv := range part {
			fmt.Fprintf(w, "deleted %s\n", registry.Label(string(kv.Key)))
		}
	}
	return nil
}

// commit makes a transaction of operations if the records are as they were, and returns its revision.
func commit(ctx context.Context, client *clientv3.Client, unchanged []clientv3.Cmp, ops []clientv3.Op) (int64, error) {
	resp, err := client.Txn(ctx).If(unchanged...).Then(ops...).Commit()
	if err != nil {
		return 0, etcdError{err}
	}
	if !resp.Succeeded {
		return 0, errors.New("a record has changed meanwhile: look again, and repeat")
	}
	return resp.Header.GetRevision(), nil
}
