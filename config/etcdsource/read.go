package etcdsource

import (
	"context"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/records"
)

// A Snapshot is all that etcd held below the registry's prefix at one revision.
type Snapshot struct {
	Revision int64
	Keys     []records.Version // in the order of etcd: by their bytes; each with its newest value, which need not be a record
}

// Read asks for the registry once and follows nothing. The answer is one snapshot however many pages
// it has, and never older than the question: cfg.Weak does not count. It tries once, and for as long
// as ctx lets it; the error of a context with a cause is that cause.
func Read(ctx context.Context, cfg Config) (Snapshot, error) {
	cfg, err := cfg.Complete()
	if err != nil {
		return Snapshot{}, err
	}
	d := dialer{cfg, etcdconfig.NewNames(nil)}
	defer d.names.Close()
	r := newReader(&d)
	defer r.close()
	l, err := r.try(ctx, list(0, false, d.pageSize(), d.hasStreams(), nil, func(int) records.List { return records.List{} }), func() {})
	if err != nil {
		return Snapshot{}, err
	}
	return Snapshot{Revision: l.revision, Keys: l.list.News()}, nil
}
