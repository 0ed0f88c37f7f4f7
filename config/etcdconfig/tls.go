package etcdconfig

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"sync/atomic"

	"github.com/golang/glog"

	"kubeproxy/config/outage"
	"kubeproxy/internal/lograte"
	"kubeproxy/registry"
)

// TLSFiles are the files that secure the way to etcd, all PEM. Each field counts on its own (D5).
type TLSFiles struct {
	CA                 []string // who may vouch for the server; none: the system's roots
	Cert, Key          string   // to be shown to the server; both or neither
	InsecureSkipVerify bool     // believe any server
}

// Config reads the files. It returns nil when there is nothing to say: then the defaults hold, which
// verify the server with the system's roots (D4).
//
// The client's certificate is read again at each handshake, so that one which has been replaced is used
// from the next connection on.
func (f TLSFiles) Config() (*tls.Config, error) {
	switch {
	case f.Cert != "" && f.Key == "":
		return nil, fmt.Errorf("client certificate %s without its key", registry.Quote(f.Cert))
	case f.Key != "" && f.Cert == "":
		return nil, fmt.Errorf("client key %s without its certificate", registry.Quote(f.Key))
	case len(f.CA) == 0 && f.Cert == "" && !f.InsecureSkipVerify:
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.InsecureSkipVerify}
	var err error
	if cfg.RootCAs, err = readRoots(f.CA); err != nil {
		return nil, err
	}
	if f.Cert != "" {
		pair := &keyPair{cert: f.Cert, key: f.Key, warnings: outage.Repeats()}
		if err := pair.load(); err != nil {
			return nil, fmt.Errorf("client certificate: %w", err)
		}
		cfg.GetClientCertificate = pair.show
	}
	return cfg, nil
}

// readRoots reads CA files. Without any it returns nil, which stands for the system's roots.
func readRoots(files []string) (*x509.CertPool, error) {
	if len(files) == 0 {
		return nil, nil
	}
	roots := x509.NewCertPool()
	for _, file := range files {
		pem, err := readFile(file)
		if err != nil {
			return nil, fmt.Errorf("CA file %s: %w", registry.Quote(file), err)
		}
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("CA file %s holds no certificate", registry.Quote(file))
		}
	}
	return roots, nil
}

// Roots returns a function for [Config.RootCAs] that reads the CA files again. When they cannot be used it returns the
// roots from before, and logs that. Without CA files Roots returns nil.
func (f TLSFiles) Roots() func() *x509.CertPool {
	if len(f.CA) == 0 {
		return nil
	}
	var last atomic.Pointer[x509.CertPool]
	warnings := outage.Repeats()
	return func() *x509.CertPool {
		roots, err := readRoots(f.CA)
		if err == nil {
			last.Store(roots)
		} else if note, ok := warnings.Allow(struct{}{}); ok {
			glog.Warningf("%v; using the ones from before%s", err, note)
		}
		return last.Load()
	}
}

// A keyPair is a certificate and its key on disk, which may be replaced at any time.
type keyPair struct {
	cert, key string
	last      atomic.Pointer[tls.Certificate] // the last that was whole
	warnings  *lograte.Limiter[struct{}]      // lines about one that was not
}

func (p *keyPair) load() error {
	pair, err := tls.LoadX509KeyPair(p.cert, p.key)
	if pathErr, ok := errors.AsType[*os.PathError](err); ok {
		return fmt.Errorf("%s: %w", registry.Quote(pathErr.Path), pathErr.Err)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", registry.Quote(p.cert), err)
	}
	p.last.Store(&pair)
	return nil
}

// show implements tls.Config.GetClientCertificate. Caught in the middle of a replacement, or after one
// that went wrong, it shows the certificate from before: the server will say whether that still does.
func (p *keyPair) show(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if err := p.load(); err != nil {
		if note, ok := p.warnings.Allow(struct{}{}); ok { // else the failure shows only when the old one expires
			glog.Warningf("client certificate for etcd: %v; using the one from before%s", err, note)
		}
	}
	return p.last.Load(), nil
}
