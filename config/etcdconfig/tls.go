package etcdconfig

import (
	"crypto/tls"
	"crypto/x509"

	"kubeproxy/config/remote"
)

// TLSFiles are the files that secure the way to etcd, all PEM. Each field counts on its own (D5).
type TLSFiles struct {
	CA                 []string // files of authorities that verify the server's certificate; none: the system's roots
	Cert, Key          string   // to be shown to the server; both or neither
	InsecureSkipVerify bool     // believe any server
}

// Config reads the files. It returns nil when there is nothing to say: then the defaults hold, which
// verify the server with the system's roots (D4).
//
// The client's certificate is read again at each handshake, so that one which has been replaced is used
// from the next connection on.
func (f TLSFiles) Config() (*tls.Config, error) {
	pair, err := remote.NewPair(remote.Text{Path: f.Cert}, remote.Text{Path: f.Key})
	if err != nil {
		return nil, err
	}
	roots, err := f.roots()
	if err != nil {
		return nil, err
	}
	if roots == nil && pair == nil && !f.InsecureSkipVerify {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.InsecureSkipVerify, RootCAs: roots.Pool()}
	if pair != nil {
		cfg.GetClientCertificate = pair.Show
	}
	return cfg, nil
}

func (f TLSFiles) roots() (*remote.Roots, error) {
	var texts []remote.Text
	for _, file := range f.CA {
		texts = append(texts, remote.Text{Path: file})
	}
	return remote.NewRoots(texts...)
}

// Roots returns a function for [Config.RootCAs] that reads the CA files again. When they cannot be used it returns the
// roots from before, and logs that. Without CA files Roots returns nil.
func (f TLSFiles) Roots() func() *x509.CertPool {
	if len(f.CA) == 0 {
		return nil
	}
	roots, _ := f.roots() // an error is one of Config, too, and the files may be good later
	return roots.Pool
}

// Renewed returns a function like [TLSFiles.Config] that reads the CA files again at each call, for a new connection. It returns nil where Config
// does.
func (f TLSFiles) Renewed() (func() *tls.Config, error) {
	cfg, err := f.Config()
	roots := f.Roots()
	return func() *tls.Config { return withRoots(cfg, roots) }, err
}

// withRoots returns settings with the authorities of now.
func withRoots(cfg *tls.Config, roots func() *x509.CertPool) *tls.Config {
	if cfg == nil || roots == nil {
		return cfg
	}
	pool := roots()
	if pool == nil {
		return cfg
	}
	cfg = cfg.Clone()
	cfg.RootCAs = pool
	return cfg
}
