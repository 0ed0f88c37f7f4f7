package apisource

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"kubeproxy/config/remote"
)

// Credentials say who the server must be, and who we are. Whatever is kept in a file is read again when it is needed, so
// that a successor is used from the next connection, or of a token the next request, on.
type Credentials struct {
	CA         remote.Text // authorities that verify the server's certificate (PEM); zero: the system's roots
	ServerName string      // the name that the server's certificate must have; empty: the host of the URL
	Insecure   bool        // believe any server

	Cert, Key remote.Text // shown to the server (PEM); both or neither
	Token     remote.Text // sent with each request; zero: none
}

// needsTLS reports whether something is of use with https only.
func (c *Credentials) needsTLS() bool {
	return !c.CA.IsZero() || c.ServerName != "" || c.Insecure || !c.Cert.IsZero() || !c.Key.IsZero()
}

// token returns the token to send, or nothing.
func (c *Credentials) token() (string, error) {
	if c.Token.IsZero() {
		return "", nil
	}
	text, err := c.Token.Read()
	if err != nil {
		return "", fmt.Errorf("token file %w", err)
	}
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return "", fmt.Errorf("token %s is empty", c.Token.Name())
	case bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("token %s is no token: it is not one word of printable ASCII", c.Token.Name())
	}
	return string(text), nil
}

// A guard makes the TLS settings of connections. Where a file cannot be used any more, what was in it before is.
type guard struct {
	Credentials
	roots *remote.Roots
	pair  *remote.Pair
}

// newGuard checks the credentials, and reads them for the first time.
func newGuard(c Credentials) (*guard, error) {
	if c.Insecure && !c.CA.IsZero() {
		return nil, errors.New("a CA that verifies the server is set, and verification is off: set one of them")
	}
	g := &guard{Credentials: c}
	var err error
	if !c.CA.IsZero() {
		if g.roots, err = remote.NewRoots(c.CA); err != nil {
			return nil, err
		}
	}
	if g.pair, err = remote.NewPair(c.Cert, c.Key); err != nil {
		return nil, err
	}
	if _, err := c.token(); err != nil {
		return nil, err
	}
	return g, nil
}

// config returns the settings for a new connection to a host.
func (g *guard) config(host string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cmp.Or(g.ServerName, host), InsecureSkipVerify: g.Insecure, RootCAs: g.roots.Pool()}
	if g.pair != nil {
		cfg.GetClientCertificate = g.pair.Show
	}
	return cfg
}
