package remote

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"sync/atomic"

	"github.com/golang/glog"

	"kubeproxy/internal/lograte"
)

// Roots are the authorities that verify the certificate of a server (PEM). Nil stands for the system's. Any goroutine may use them.
type Roots struct {
	texts    []Text
	last     atomic.Pointer[x509.CertPool] // the last that was whole
	warnings *lograte.Limiter[struct{}]
}

// NewRoots reads authorities. Without any text it returns nil.
func NewRoots(texts ...Text) (*Roots, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	r := &Roots{texts: texts, warnings: lograte.Lasting[struct{}](1)}
	return r, r.read()
}

func (r *Roots) read() error {
	pool := x509.NewCertPool()
	for _, t := range r.texts {
		text, err := t.Read()
		if err != nil {
			return fmt.Errorf("CA file %w", err)
		}
		if err := appendAuthorities(pool, text); err != nil {
			return fmt.Errorf("CA file %s holds %w", t.Name(), err)
		}
	}
	r.last.Store(pool)
	return nil
}

// appendAuthorities adds the certificates of a text, which has to be whole. [x509.CertPool.AppendCertsFromPEM] leaves out what it cannot read:
// of a file that is half written that would be authorities, and their servers could not be verified. What is whole and means nothing to us is left
// out, as there: text between blocks, blocks of other types, and certificates that do not parse, such as those of an old authority in a system's bundle.
func appendAuthorities(pool *x509.CertPool, text []byte) error {
	begun, whole, certificates := len(beginning.FindAllIndex(text, -1)), 0, 0
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		whole++
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			continue
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			pool.AddCert(cert)
			certificates++
		}
	}
	switch {
	case whole < begun: // pem.Decode skips what it cannot read
		return errors.New("a PEM block that is not whole")
	case certificates == 0:
		return errors.New("no certificate")
	}
	return nil
}

// beginning is how a PEM block begins.
var beginning = regexp.MustCompile(`(?m)^-----BEGIN`)

// Pool reads the authorities again, and returns them; nil for the system's.
func (r *Roots) Pool() *x509.CertPool {
	if r == nil {
		return nil
	}
	keepOld(r.read(), r.warnings)
	return r.last.Load()
}

// A Pair is a certificate and its key (PEM), which are shown to a server. Nil is none. Any goroutine may use it.
type Pair struct {
	cert, key Text
	last      atomic.Pointer[tls.Certificate] // the last that was whole
	warnings  *lograte.Limiter[struct{}]
}

// NewPair reads a certificate and its key. Without either it returns nil; one without the other is an error.
func NewPair(cert, key Text) (*Pair, error) {
	switch {
	case cert.IsZero() && key.IsZero():
		return nil, nil
	case key.IsZero():
		return nil, fmt.Errorf("client certificate %s without its key", cert.Name())
	case cert.IsZero():
		return nil, fmt.Errorf("client key %s without its certificate", key.Name())
	}
	p := &Pair{cert: cert, key: key, warnings: lograte.Lasting[struct{}](1)}
	return p, p.read()
}

func (p *Pair) read() error {
	cert, err := p.cert.Read()
	if err != nil {
		return fmt.Errorf("client certificate %w", err)
	}
	key, err := p.key.Read()
	if err != nil {
		return fmt.Errorf("client key %w", err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return fmt.Errorf("client certificate %s: %w", p.cert.Name(), err)
	}
	p.last.Store(&pair)
	return nil
}

// Show implements [tls.Config.GetClientCertificate]. It reads the pair again.
func (p *Pair) Show(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	keepOld(p.read(), p.warnings)
	return p.last.Load(), nil
}

// keepOld logs why a file cannot be used: else that shows only when what it held before expires.
func keepOld(err error, warnings *lograte.Limiter[struct{}]) {
	if err == nil {
		return
	}
	if note, ok := warnings.Allow(struct{}{}); ok {
		glog.Warningf("%v; using the one from before%s", err, note)
	}
}
