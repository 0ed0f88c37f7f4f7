package register

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/golang/glog"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// warnOfService warns of what keeps proxies from using the record: that there is no service of this name, or that it has no port of
// the name that a port of the instance has. A user that may not read the record of the service is not warned.
func (r *Registrar) warnOfService(ctx context.Context) {
	in := &r.cfg.Instance
	ops := []clientv3.Op{clientv3.OpGet(registry.SpecsPrefix + in.Service.Namespace + "/" + in.Service.Name)}
	if in.Service.Namespace == registry.DefaultNamespace {
		ops = append(ops, clientv3.OpGet(registry.SpecsPrefix+in.Service.Name)) // v0.4's key
	}
	resp, err := r.client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		glog.V(1).Infof("%s: the record of service %v cannot be read: %v", r.key, in.Service, r.dialer.Explain(ctx, err))
		return
	}
	found := false
	var names []string
	for _, answer := range resp.Responses {
		for _, kv := range answer.GetResponseRange().Kvs {
			found = true
			if record, _, err := decode.Decode(string(kv.Key), kv.Value); err == nil {
				for _, p := range record.Service.Ports {
					names = append(names, p.Name)
				}
			}
		}
	}
	if !found {
		glog.Warningf("%s: there is no service %v yet: proxies open its ports when %s is written", r.key, in.Service, ops[0].KeyBytes())
		return
	}
	for _, p := range in.Ports {
		if !slices.Contains(names, p.Name) {
			glog.Warningf("%s: proxies do not use port %v: service %v has no port %s, but %s; give -port=NAME=NUMBER as there",
				r.key, p, in.Service, named(p.Name), list(names))
		}
	}
}

// named describes a port by its name.
func named(name string) string {
	if name == "" {
		return "without a name"
	}
	return "of the name " + registry.Quote(name)
}

// list describes the ports of a service by their names.
func list(names []string) string {
	if len(names) == 0 {
		return "none at all"
	}
	const few = 10
	var all []string
	for _, name := range names[:min(len(names), few)] {
		all = append(all, fmt.Sprintf("one %s", named(name)))
	}
	if len(names) > few {
		all = append(all, fmt.Sprintf("%d more", len(names)-few))
	}
	return strings.Join(all, ", ")
}
