package config

import "kubeproxy/registry"

// A kind is what the store and the queues must know of services, or of endpoints, to treat both
// alike. v0.4 had each of its algorithms twice.
type kind[T any] struct {
	noun  string
	equal func(a, b *T) bool // takes nil too
}

var (
	services  = kind[registry.Service]{"service", (*registry.Service).Equal}
	endpoints = kind[registry.Endpoints]{"endpoints", (*registry.Endpoints).Equal}
)

// same tells whether two values of one object, nil for none, say the same. A source that repeats
// itself mostly sends the very same value, so that seldom needs a closer look.
func (k kind[T]) same(a, b *T) bool { return a == b || k.equal(a, b) }
