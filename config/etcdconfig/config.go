package etcdconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
)

// The defaults of a [Config].
const (
	DefaultDialTimeout    = 2 * time.Second
	DefaultSyncPeriod     = 30 * time.Second // v0.4's
	DefaultPageSize       = 500
	DefaultRequestTimeout = 10 * time.Second
	DefaultProbePeriod    = time.Second
)

// A Config says which etcd to follow and how. Only Endpoints must be set; a zero field is its
// default.
type Config struct {
	// Endpoints are URLs of members of one etcd cluster: "http://host:port", "https://host:port", or
	// "host:port", which means http (D3). All have the same scheme. Blanks around them are ignored.
	Endpoints []string

	// TLS is used with https. Nil verifies the server with the system's roots (D4): no setting
	// turns verification off but the caller's own InsecureSkipVerify. See [TLSFiles].
	TLS *tls.Config

	// RootCAs, if set, is asked for the authorities at each new connection. For nil, those of TLS count. See [TLSFiles.Roots].
	RootCAs func() *x509.CertPool

	// Username and Password log in to an etcd with authentication. Both or neither.
	Username, Password string

	// ReadPassword, if set, is asked for the password at each login. After an error the connection is tried again.
	ReadPassword func() (string, error)

	// Weak allows reads from a member that may lag behind (v0.4's WEAK). What it reads is still
	// never older than what is known: then etcd is asked again, for the newest.
	Weak bool

	Decoder decode.Decoder // how records are understood

	// HolderKeys are prefixes of the keys of etcd 3 that records may have elect endpoints. The Decoder of a source that follows such keys has them, too.
	HolderKeys []string

	// Patroni is the prefix of the keys of clusters of Patroni that records may name; "": none. The Decoder has it, too.
	Patroni string

	DialTimeout    time.Duration // for one connection attempt and, apart from it, one login
	SyncPeriod     time.Duration // between full lists, ±20 %; to the first resync of a session, 20 to 120 %
	RequestTimeout time.Duration // without progress of a list, and for opening a watch
	ProbePeriod    time.Duration // how long the watch may say nothing before it is asked whether it lives
	PageSize       int64         // keys in one page of a list, at most: while pages take too long they are smaller; 0: in one stream where etcd has that, else DefaultPageSize

	// A watch that is more than BehindRevisions behind etcd is given up after BehindBytes more. 0 for both: see package behind.
	BehindRevisions int64
	BehindBytes     int
}

// Secured returns the settings for a new connection: TLS with the authorities that RootCAs has now. Nil stands for the defaults.
func (c Config) Secured() *tls.Config { return withRoots(c.TLS, c.RootCAs) }

// Complete returns a copy that is complete, and has been checked.
func (c Config) Complete() (Config, error) {
	if len(c.Endpoints) == 0 {
		return c, errors.New("no etcd URL")
	}
	var endpoints []string
	for _, e := range c.Endpoints {
		endpoint, err := parseEndpoint(e)
		if err != nil {
			return c, err
		}
		// clientv3 decides by one of the URLs whether all connections are encrypted.
		if len(endpoints) > 0 && IsHTTPS(endpoint) != IsHTTPS(endpoints[0]) {
			return c, errors.New("some etcd URLs are http and some are https: use one of them")
		}
		if !slices.Contains(endpoints, endpoint) {
			endpoints = append(endpoints, endpoint)
		}
	}
	c.Endpoints = endpoints
	if (c.Username == "") != (c.Password == "") {
		return c, errors.New("etcd user without password, or password without user")
	}
	if err := remote.SetDefaults(
		remote.Duration{Name: "dial timeout", Value: &c.DialTimeout, Default: DefaultDialTimeout},
		remote.Duration{Name: "sync period", Value: &c.SyncPeriod, Default: DefaultSyncPeriod},
		remote.Duration{Name: "request timeout", Value: &c.RequestTimeout, Default: DefaultRequestTimeout},
		remote.Duration{Name: "probe period", Value: &c.ProbePeriod, Default: DefaultProbePeriod},
	); err != nil {
		return c, err
	}
	for _, prefix := range c.HolderKeys {
		if !strings.HasPrefix(prefix, "/") {
			return c, fmt.Errorf("prefix %s of holder keys does not begin with a slash", registry.Quote(prefix))
		}
	}
	if c.Patroni != "" && (!strings.HasPrefix(c.Patroni, "/") || !strings.HasSuffix(c.Patroni, "/") || strings.HasPrefix(c.Patroni, registry.Prefix)) {
		return c, fmt.Errorf("prefix %s of Patroni's keys does not begin and end with a slash, or is that of records", registry.Quote(c.Patroni))
	}
	if c.PageSize < 0 {
		return c, fmt.Errorf("negative page size %d", c.PageSize)
	}
	if c.BehindRevisions < 0 || c.BehindBytes < 0 {
		return c, fmt.Errorf("a watch cannot be %d revisions and %d bytes behind", c.BehindRevisions, c.BehindBytes)
	}
	return c, nil
}

// IsHTTPS reports whether a URL asks for TLS.
func IsHTTPS(endpoint string) bool { return remote.IsHTTPS(endpoint) }

// parseEndpoint reads one etcd URL and gives it back as scheme, host and port. What would only fail
// later, and for ever, is an error now (D3).
func parseEndpoint(s string) (string, error) {
	const what = "etcd URL"
	u, err := remote.ParseURL(what, s, "http")
	switch {
	case err != nil:
		return "", err
	case u.Port() == "":
		return "", remote.WrongURL(what, s, "has no port")
	case u.Path != "" && u.Path != "/":
		return "", remote.WrongURL(what, s, "has something after host and port")
	}
	return u.Scheme + "://" + u.Host, nil
}
