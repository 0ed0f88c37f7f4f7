package register

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/golang/glog"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
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

// withhold decides whether the first record has to wait, because the service has a record of endpoints and no slice yet. Slices come first, so
// the endpoints of that record would lose all clients. Once there is a slice, or its endpoints have gone, the instance is registered.
func (r *Registrar) withhold(ctx context.Context) error {
	if r.published || r.cfg.Supersede {
		r.withheld = false
		return nil
	}
	key, n, err := r.endpointsByHand(ctx)
	switch {
	case err != nil && errors.Is(rpctypes.Error(err), rpctypes.ErrPermissionDenied):
		glog.Warningf("%s: whether %v has a record of endpoints, which would have no effect beside this one, cannot be read: %v", r.key, r.cfg.Instance.Service, err)
		r.withheld = false
		return nil
	case err != nil:
		return fmt.Errorf("read the endpoints of the service: %w", r.dialer.Explain(ctx, err))
	case key == "":
		if r.withheld {
			glog.Infof("%s: the service has no record of endpoints any more that counts", r.key)
		}
		r.withheld = false
		return nil
	}
	r.withheld = true
	if note, ok := r.log.Allow(key); ok {
		glog.Errorf("%s: not registered: the record %s lists %d endpoints, which would lose all clients, since endpoint slices come before it. "+
			"Register these instances, too, then delete the record: etcdctl del %s. Or give -supersede_endpoints%s", r.key, registry.Label(key), n, registry.Label(key), note)
	}
	return nil
}

// endpointsByHand returns the record of endpoints that is in force for the service, and how many endpoints it lists; "" if there is none, or a
// slice of the service.
func (r *Registrar) endpointsByHand(ctx context.Context) (key string, n int, err error) {
	of := r.cfg.Instance.Service
	keys := []string{registry.EndpointsPrefix + of.Namespace + "/" + of.Name}
	if of.Namespace == registry.DefaultNamespace {
		keys = append(keys, registry.EndpointsPrefix+of.Name) // v0.4's key
	}
	for _, k := range keys {
		resp, err := r.client.Get(ctx, k)
		if err != nil {
			return "", 0, err
		}
		for _, kv := range resp.Kvs {
			record, _, err := decode.Decode(k, kv.Value)
			if err != nil || key != "" {
				continue
			}
			for _, p := range record.Endpoints.ByPort {
				n += p.Addrs.Len()
			}
			if n > 0 {
				key = k
			}
		}
	}
	if key == "" {
		return "", 0, nil
	}
	resp, err := r.client.Get(ctx, registry.EndpointSlicesPrefix+of.Namespace+"/", clientv3.WithPrefix())
	if err != nil {
		return "", 0, err
	}
	for _, kv := range resp.Kvs {
		if record, _, err := decode.Decode(string(kv.Key), kv.Value); err == nil && record.Slice != nil && record.Slice.ServiceName() == of {
			return "", 0, nil
		}
	}
	return key, n, nil
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
