package apisource

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/golang/glog"

	"kubeproxy/config/outage"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// Credentials say who the server must be, and who we are. Whatever is kept in a file is read again when it is needed, so
// that a successor is used from the next connection, or of a token the next request, on.
type Credentials struct {
	CA         Text   // who may vouch for the server (PEM); zero: the system's roots
	ServerName string // the name that the server's certificate must have; empty: the host of the URL
	Insecure   bool   // believe any server

	Cert, Key Text // shown to the server (PEM); both or neither
	Token     Text // sent with each request; zero: none
}

// A Text is kept in a file, or is given. The zero Text is none.
type Text struct {
	Path string
	Data []byte // counts where Path is empty
}

// IsZero reports whether there is no text.
func (t Text) IsZero() bool { return t.Path == "" && len(t.Data) == 0 }

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

// read returns the text. Its errors name the file and never what is in it.
func (t Text) read() ([]byte, error) {
	if t.Path == "" {
		return t.Data, nil
	}
	f, err := os.Open(t.Path)
	if err != nil {
		return nil, fileError(t.Path, err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	switch {
	case err != nil:
		return nil, fileError(t.Path, err)
	case len(text) > maxFile:
		return nil, fmt.Errorf("%s is longer than %d KiB", registry.Quote(t.Path), maxFile>>10)
	}
	return text, nil
}

// name says where the text is, for an error.
func (t Text) name() string {
	if t.Path == "" {
		return "given in the configuration"
	}
	return registry.Quote(t.Path)
}

// fileError is an error about a file, with its name quoted.
func fileError(path string, err error) error {
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		err = pathErr.Err
	}
	return fmt.Errorf("%s: %w", registry.Quote(path), err)
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
	text, err := c.Token.read()
	if err != nil {
		return "", fmt.Errorf("token file %w", err)
	}
	text = bytes.TrimSpace(text)
	switch {
	case len(text) == 0:
		return "", fmt.Errorf("token %s is empty", c.Token.name())
	case bytes.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "", fmt.Errorf("token %s is no token: it is not one word of printable ASCII", c.Token.name())
	}
	return string(text), nil
}

// A guard makes the TLS settings of connections. Where a file cannot be used any more, what was in it before is.
type guard struct {
	Credentials
	roots    atomic.Pointer[x509.CertPool]
	pair     atomic.Pointer[tls.Certificate]
	warnings *lograte.Limiter[string]
}

// newGuard checks the credentials, and reads them for the first time.
func newGuard(c Credentials) (*guard, error) {
	g := &guard{Credentials: c, warnings: outage.Limit[string]()}
	switch {
	case c.Cert.IsZero() != c.Key.IsZero():
		return nil, errors.New("client certificate without its key, or key without its certificate")
	case c.Insecure && !c.CA.IsZero():
		return nil, errors.New("authorities that may vouch for the server are given, and that any server is believed: one of them")
	}
	if err := g.readRoots(); err != nil {
		return nil, err
	}
	if err := g.readPair(); err != nil {
		return nil, err
	}
	if _, err := c.token(); err != nil {
		return nil, err
	}
	return g, nil
}

func (g *guard) readRoots() error {
	if g.CA.IsZero() {
		return nil
	}
	pem, err := g.CA.read()
	if err != nil {
		return fmt.Errorf("CA file %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return fmt.Errorf("CA file %s holds no certificate", g.CA.name())
	}
	g.roots.Store(roots)
	return nil
}

func (g *guard) readPair() error {
	if g.Cert.IsZero() {
		return nil
	}
	cert, err := g.Cert.read()
	if err != nil {
		return fmt.Errorf("client certificate %w", err)
	}
	key, err := g.Key.read()
	if err != nil {
		return fmt.Errorf("client key %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("client certificate %s: %w", g.Cert.name(), err)
	}
	g.pair.Store(&pair)
	return nil
}

// config returns the settings for a new connection to a host.
func (g *guard) config(host string) *tls.Config {
	for _, err := range []error{g.readRoots(), g.readPair()} {
		if err == nil {
			continue
		}
		if note, ok := g.warnings.Allow(err.Error()); ok {
			glog.Warningf("%v; using the one from before%s", err, note)
		}
	}
	if g.ServerName != "" {
		host = g.ServerName
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: host, InsecureSkipVerify: g.Insecure, RootCAs: g.roots.Load()}
	if pair := g.pair.Load(); pair != nil {
		cfg.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return pair, nil }
	}
	return cfg
}
