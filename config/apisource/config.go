package apisource

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// The defaults of a [Config].
const (
	DefaultSyncPeriod     = 30 * time.Second // v0.4's
	DefaultDialTimeout    = 5 * time.Second
	DefaultRequestTimeout = 10 * time.Second
	DefaultPageSize       = 500
)

// Versions are the API versions that a Config may ask for.
var Versions = []string{"v1beta1", "v1beta2", "v1"}

// A Config says which API server to follow and how. Only Server must be set; a zero field is its default.
type Config struct {
	// Server is the URL of the server: "http://host:port" or "https://host", with a path if the API is below one. An address
	// without a scheme means https if there is anything in Credentials, else http, as in v0.4.
	Server string

	// APIVersion is one of [Versions]. Empty means the newest that the server has.
	APIVersion string

	Credentials

	// Decoder reads the records.
	Decoder decode.Decoder

	// SyncPeriod is the time between full lists of a server of v1beta1, ±20 %. A server of v1 tells every change, and a list
	// costs it more: there it is [SyncFactor] times as long.
	SyncPeriod time.Duration

	DialTimeout    time.Duration // for one connection attempt, the look-up of the name and the TLS handshake included
	RequestTimeout time.Duration // until a response begins, and for each 16 KiB of a list
	PageSize       int           // objects in one page of a list, where the server has pages

	// dial connects; nil means package net's way. Tests have no network.
	dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// SyncFactor is how many sync periods pass between two full lists of a server of v1.
const SyncFactor = 20

// withDefaults returns a copy that is complete, and has been checked.
func (c Config) withDefaults() (Config, error) {
	var err error
	if c.Server, err = parseServer(c.Server, c.needsTLS() || !c.Token.IsZero()); err != nil {
		return c, err
	}
	if c.APIVersion != "" && !slices.Contains(Versions, c.APIVersion) {
		return c, fmt.Errorf("API version %s is not recognized (valid values: %s)", registry.Quote(c.APIVersion), strings.Join(Versions, ", "))
	}
	if !remote.IsHTTPS(c.Server) && c.needsTLS() {
		return c, fmt.Errorf("certificates or settings of TLS are given, but the URL of the API server, %s, is not https", c.Server)
	}
	if err := remote.SetDefaults(
		remote.Duration{Name: "sync period", Value: &c.SyncPeriod, Default: DefaultSyncPeriod},
		remote.Duration{Name: "dial timeout", Value: &c.DialTimeout, Default: DefaultDialTimeout},
		remote.Duration{Name: "request timeout", Value: &c.RequestTimeout, Default: DefaultRequestTimeout},
	); err != nil {
		return c, err
	}
	if c.PageSize < 0 {
		return c, fmt.Errorf("negative page size %d", c.PageSize)
	}
	c.PageSize = cmp.Or(c.PageSize, DefaultPageSize)
	if c.dial == nil {
		// A peer that is gone without a word is noticed by the kernel, within 20 s: most of the time a watch sends nothing.
		d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 3 * time.Second, Count: 3}}
		c.dial = d.DialContext
	}
	return c, nil
}

// parseServer reads the URL of a server and gives it back without a slash at its end. What would only fail later, and for
// ever, is an error now. v0.4 took "name:port" for a URL whose scheme is name.
func parseServer(s string, secure bool) (string, error) {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	u, err := remote.ParseURL("URL of the API server", s, scheme)
	if err != nil {
		return "", err
	}
	return u.Scheme + "://" + u.Host + strings.TrimRight(u.EscapedPath(), "/"), nil
}
