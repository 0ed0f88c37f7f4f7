package config

import "kubeproxy/registry"

// A kind is what the store and the queues must know of services, or of endpoints, to treat both
// alike. v0.4 had each of its algorithms twice.
type kind[T any] struct {
	noun  string
	equal func(a, b *T) bool // takes nil too

	// ranked gives a value with the rank of its source, 0 being the first. It may be the same value.
	ranked func(value *T, rank int) *T
}

var (
	services  = kind[registry.Service]{"service", (*registry.Service).Equal, rankedService}
	endpoints = kind[registry.Endpoints]{"endpoints", (*registry.Endpoints).Equal, func(e *registry.Endpoints, _ int) *registry.Endpoints { return e }}
)

// rankedService copies services of all sources but the first: their source still has them, and knows no rank.
func rankedService(s *registry.Service, rank int) *registry.Service {
	if s == nil || s.Rank == rank {
		return s
	}
	ranked := *s
	ranked.Rank = rank
	return &ranked
}

// same reports whether two values of one object, nil for none, say the same. A source that repeats
// itself mostly sends the very same value, so that seldom needs a closer look.
func (k kind[T]) same(a, b *T) bool { return a == b || k.equal(a, b) }
