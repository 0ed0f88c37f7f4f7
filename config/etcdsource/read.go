package etcdsource

import "context"

// A Snapshot is all that etcd held below the registry's prefix at one revision.
type Snapshot struct {
	Revision int64
	Keys     []Key // in the order of etcd: by their bytes
}

// A Key is one key of a snapshot with its newest value, which need not be a record.
type Key struct {
	Key     string
	Value   []byte
	Created int64 // its create revision

	Modified int64 // its mod revision
}

// Read asks for the registry once and follows nothing. The answer is one snapshot however many pages
// it has, and never older than the question: cfg.Weak does not count. It tries once, and for as long
// as ctx lets it; the error of a context with a cause is that cause.
func Read(ctx context.Context, cfg Config) (Snapshot, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return Snapshot{}, err
	}
	d := dialer{cfg, newNames()}
	defer d.names.close()
	r := newReader(&d)
	defer r.close()
	l, err := r.try(ctx, list(0, false, cfg.PageSize, false, nil), func() {})
	if err != nil {
		return Snapshot{}, err
	}
	s := Snapshot{Revision: l.revision, Keys: make([]Key, len(l.kvs))}
	for i, kv := range l.kvs {
		s.Keys[i] = Key{string(kv.Key), kv.Value, kv.CreateRevision, kv.ModRevision}
	}
	return s, nil
}
