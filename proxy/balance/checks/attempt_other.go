//go:build !linux

package checks

import (
	"errors"
	"net/netip"
)

// Supported reports whether this system has attempts.
const Supported = false

// Authorities are none: nothing is asked over TLS. So a program of this package without them, such as that of a browser, has no package tls.
type Authorities struct{}

type (
	trusted   struct{}
	tlsConfig struct{}
)

func (*Checker) tlsConfigOf(*Target) tlsConfig { return tlsConfig{} }

// An Attempt is one question to one address, under way.
type Attempt struct{}

// Begin fails.
func Begin(*Question, netip.AddrPort, tlsConfig) (Attempt, error) {
	return Attempt{}, errors.ErrUnsupported
}

// Repeat does nothing.
func (*Attempt) Repeat(*Question, netip.AddrPort) (another bool) { return false }

// Close does nothing.
func (*Attempt) Close() {}

// Proceed fails.
func (*Attempt) Proceed(*Question, netip.AddrPort) (done bool, err error) {
	return true, errors.ErrUnsupported
}

// A Poller finds none that can go on.
type Poller struct{}

// Look reports that none can.
func (*Poller) Look([]*Attempt) (ready func(i int) bool) { return func(int) bool { return false } }
