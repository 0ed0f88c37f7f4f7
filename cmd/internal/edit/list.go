package edit

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
)

// page is how many records are read in one call.
const page = 1000

// List prints a line for each record that etcd holds of services, at one revision.
func List(ctx context.Context, client *clientv3.Client, w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "RECORD\tREVISION\tHOLDS")
	n, revision := 0, int64(0)
	for _, prefix := range [...]string{registry.SpecsPrefix, registry.EndpointSlicesPrefix, registry.EndpointsPrefix} {
		for from := prefix; from != ""; {
			answer, err := client.Get(ctx, from, clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(page), clientv3.WithRev(revision))
			if err != nil {
				return CallError{err}
			}
			revision, from = answer.Header.Revision, ""
			for _, kv := range answer.Kvs {
				fmt.Fprintf(table, "%s\t%d\t%s\n", registry.Label(string(kv.Key)), kv.ModRevision, holds(kv, nil))
				n++
			}
			if answer.More {
				from = string(answer.Kvs[len(answer.Kvs)-1].Key) + "\x00"
			}
			if err := table.Flush(); err != nil {
				return err
			}
		}
	}
	if n == 0 {
		fmt.Fprintln(w, "etcd holds no record of a service")
	}
	return nil
}
