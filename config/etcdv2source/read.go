package etcdv2source

import (
	"context"
	"errors"

	"kubeproxy/config/etcdconfig"
)

// A Key is one key of the registry, as it was when it was read.
type Key struct {
	Key, Value        string
	Created, Modified int64 // indexes of etcd
}

// Read reads the registry once, by quorum, and returns it with its index. It asks one member after the other until one answers.
func Read(ctx context.Context, cfg etcdconfig.Config) (keys []Key, index int64, err error) {
	cfg, err = cfg.Complete()
	if err != nil {
		return nil, 0, err
	}
	d := dialer{cfg, etcdconfig.NewNames(nil)}
	defer d.names.Close()
	var failed []error
	for _, member := range cfg.Endpoints {
		life, cancel := context.WithCancel(ctx)
		c := d.open(life, member)
		l, err := c.list(ctx, true)
		cancel()
		c.close()
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, n := range l.nodes {
			keys = append(keys, Key{Key: n.Key, Value: n.Value, Created: n.CreatedIndex, Modified: n.ModifiedIndex})
		}
		return keys, l.index, nil
	}
	return nil, 0, errors.Join(failed...)
}
