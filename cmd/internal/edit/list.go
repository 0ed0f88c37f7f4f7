package edit

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// page is how many records are read in one call.
const page = 1000

// List prints a line for each record that etcd holds of services, at one revision.
func List(ctx context.Context, client *clientv3.Client, out Output) error {
	table, revision := out.table(false), int64(0)
	for _, prefix := range [...]string{registry.SpecsPrefix, registry.EndpointSlicesPrefix, registry.EndpointsPrefix} {
		for from := prefix; from != ""; {
			answer, err := client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page), clientv3.WithRev(revision))
			if err != nil {
				return CallError{err}
			}
			revision, from = answer.Header.Revision, ""
			for _, kv := range answer.Kvs {
				if err := table.add(describe(kv, nil)); err != nil {
					return err
				}
			}
			if answer.More {
				from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
			}
			if err := table.flush(); err != nil {
				return err
			}
		}
	}
	if table.n == 0 && !out.JSON {
		fmt.Fprintln(out.To, "etcd holds no record of a service")
	}
	return nil
}
