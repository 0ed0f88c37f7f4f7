package edit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// A Wish is what the records of a service are to say. What it leaves out stays as it is.
type Wish struct {
	Port      uint16   // 0: as it is
	Protocol  string   // "": as it is
	Endpoints []string // HOST:PORT; none: as they are
}

// Put writes records of a service with one port, and keeps all that the wish does not name: annotations, for instance. Flat records alone are
// edited, as v0.4 has them; others say that they are to be edited by hand. Nothing is written unless a node would take all of it, or if a
// record has changed meanwhile.
func Put(ctx context.Context, client *clientv3.Client, service registry.Name, wish Wish, out Output) error {
	set, err := read(ctx, client, service)
	if err != nil {
		return err
	}
	var unchanged []clientv3.Cmp
	var puts []clientv3.Op
	var written []string
	write := func(prefix string, edit func(map[string]any)) error {
		key, old, err := set.only(prefix)
		if err != nil {
			return err
		}
		value, err := edited(key, old, edit)
		if err != nil {
			return fmt.Errorf("%s: %w", registry.Label(key), err)
		}
		revision := int64(0) // of no record
		if old != nil {
			revision = old.ModRevision
		}
		unchanged = append(unchanged, clientv3.Compare(clientv3.ModRevision(key), "=", revision))
		options := []clientv3.OpOption{}
		if old != nil && old.Lease != 0 {
			options = append(options, clientv3.WithIgnoreLease())
		}
		puts, written = append(puts, clientv3.OpPut(key, value, options...)), append(written, key)
		return nil
	}
	if wish.Port != 0 || wish.Protocol != "" {
		err = write(registry.SpecsPrefix, func(record map[string]any) {
			setDefaults(record, "Service", service)
			if wish.Port != 0 {
				record["port"] = wish.Port
			}
			if wish.Protocol != "" {
				record["protocol"] = strings.ToUpper(wish.Protocol)
			}
		})
	}
	if err == nil && len(wish.Endpoints) > 0 {
		err = write(registry.EndpointsPrefix, func(record map[string]any) {
			setDefaults(record, "Endpoints", service)
			record["endpoints"] = wish.Endpoints
		})
	}
	if err != nil {
		return err
	}
	revision, err := commit(ctx, client, unchanged, puts)
	if err != nil {
		return err
	}
	for _, key := range written {
		if err := out.print(Change{Did: wrote, Key: key, Revision: revision}); err != nil {
			return err
		}
	}
	return nil
}

// object decodes a value that is a JSON object. Numbers stay as they are spelled.
func object(value []byte) (map[string]any, error) {
	var record map[string]any
	decoder := json.NewDecoder(strings.NewReader(string(value)))
	decoder.UseNumber()
	if err := decoder.Decode(&record); err != nil || record == nil {
		return nil, errors.New("what is there is no JSON object: edit it by hand, or delete it")
	}
	return record, spelled(record)
}

// fields are those of a record, and of its metadata, by which an edit could change what nodes read.
var fields = []string{
	"addressType", "annotations", "apiVersion", "endpoints", "id", "kind", "labels", "metadata", "namespace", "port", "portName", "ports", "protocol", "spec", "subsets",
}

// spelled returns an error if a field has its name in another letter case. Nodes take it in any, and of two the last counts; an edit would write another
// one beside it, and sort them.
func spelled(object map[string]any) error {
	for name := range object {
		for _, field := range fields {
			if name != field && strings.EqualFold(name, field) {
				return fmt.Errorf("it spells the field %q as %s: edit it by hand", field, registry.Quote(name))
			}
		}
	}
	return nil
}

// setDefaults gives a new record what it has to have.
func setDefaults(record map[string]any, kind string, service registry.Name) {
	for name, value := range map[string]string{"kind": kind, "apiVersion": "v1beta1", "id": service.Name} {
		if _, ok := record[name]; !ok {
			record[name] = value
		}
	}
}

// only returns the one record of the service below a prefix, and its key; nil: it is to be made.
func (set *Set) only(prefix string) (key string, old *mvccpb.KeyValue, err error) {
	for _, kv := range set.keys {
		switch {
		case strings.HasPrefix(string(kv.Key), registry.EndpointSlicesPrefix) && prefix == registry.EndpointsPrefix:
			return "", nil, fmt.Errorf("the endpoints of %s are in slices, such as %s: edit those, or delete them", set.service.Label(), registry.Label(string(kv.Key)))
		case !strings.HasPrefix(string(kv.Key), prefix):
		case old != nil:
			return "", nil, fmt.Errorf("%s has two records, %s and %s: delete one of them", set.service.Label(), registry.Label(string(old.Key)), registry.Label(string(kv.Key)))
		default:
			key, old = string(kv.Key), kv
		}
	}
	if old == nil {
		key = prefix + set.service.Namespace + "/" + set.service.Name
	}
	return key, old, nil
}

// edited returns the value of a record after an edit, once it decodes as a node would decode it.
func edited(key string, old *mvccpb.KeyValue, edit func(map[string]any)) (string, error) {
	record := make(map[string]any)
	if old != nil {
		var err error
		if record, err = object(old.Value); err != nil {
			return "", err
		}
		for _, nested := range [...]string{"metadata", "spec", "subsets", "ports"} {
			if _, ok := record[nested]; ok {
				return "", fmt.Errorf("it has the field %q, and only flat records of one port are edited: edit it by hand", nested)
			}
		}
	}
	edit(record)
	value, err := json.Marshal(record)
	if err != nil {
		return "", err
	}
	_, warnings, err := decode.Decode(key, value)
	if err == nil && len(warnings) > 0 {
		err = errors.New(string(warnings[0]))
	}
	return string(value), err
}
