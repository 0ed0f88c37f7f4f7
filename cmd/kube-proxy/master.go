package main

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/config/apisource"
	"kubeproxy/config/remote"
	"kubeproxy/registry/decode"
)

// masterOptions says where the Kubernetes API server is and how to talk to it. The files are read only when the source is made.
type masterOptions struct {
	address    string
	kubeconfig string
	apiVersion string
	insecure   bool
	certFile   string
	keyFile    string
	caFile     string
	tokenFile  string
}

// inCluster is the address that stands for what each pod is given.
const inCluster = "in-cluster"

func (m *masterOptions) addFlags(c *commandline.Command) {
	c.Group(topicRegistry, func(f *pflag.FlagSet) {
		f.StringVar(&m.address, "master", "", "`address` of the Kubernetes API server to read from instead of etcd: host:port, a URL, or "+inCluster+" for the service account of this pod")
		f.StringVar(&m.kubeconfig, "kubeconfig", "", "`file` whose current context names the API server and the credentials; -master and its flags win over it")
		f.StringVar(&m.apiVersion, "api_version", "", "`version` of the API: v1beta1, v1beta2 or v1; the newest that the server has if not given")
	})
	c.Group(topicSecurity, func(f *pflag.FlagSet) {
		f.BoolVar(&m.insecure, "insecure_skip_tls_verify", false, "do not verify the API server's certificate")
		f.StringVar(&m.certFile, "client_certificate", "", "`file` with the proxy's certificate for the API server (PEM)")
		f.StringVar(&m.keyFile, "client_key", "", "`file` with the key of -client_certificate (PEM)")
		f.StringVar(&m.caFile, "certificate_authority", "", "CA `file` that verifies the API server's certificate (PEM); the system's if not given")
		f.StringVar(&m.tokenFile, "master_token_file", "", "`file` with the bearer token to send to the API server; it is read again for each request")
	})
}

// Names of flags: those that mean nothing without an API server, and those that mean nothing with one.
var (
	onlyForMaster = []string{"api_version", "insecure_skip_tls_verify", "client_certificate", "client_key", "certificate_authority", "master_token_file"}
	onlyForEtcd   = []string{"etcd_servers", "etcd_config", "etcd_cafile", "etcd_certfile", "etcd_keyfile", "etcd_insecure_skip_tls_verify", "etcd_username", "etcd_password_file", "holder_keys", "patroni", "patroni_cafile", "patroni_certfile", "patroni_keyfile"}
)

// given reports whether the flags name an API server.
func (m *masterOptions) given() bool { return m.address != "" || m.kubeconfig != "" }

func (m *masterOptions) contradiction() error {
	switch {
	case (m.certFile == "") != (m.keyFile == ""): // D5
		return errors.New("-client_certificate and -client_key need each other")
	case m.caFile != "" && m.insecure:
		return errors.New("-certificate_authority and -insecure_skip_tls_verify are mutually exclusive")
	case m.address == inCluster && m.kubeconfig != "":
		return errors.New("-master=" + inCluster + " and -kubeconfig are mutually exclusive")
	}
	if m.address == "" || m.address == inCluster {
		return nil
	}
	if _, err := remote.ParseURL("URL of the API server", m.address, "http"); err != nil { // before anything shows the address: it may hold a password
		return fmt.Errorf("-master: %w", err)
	}
	return nil
}

// source makes the source. It reads the files that flags name, and connects to nothing.
func (m *masterOptions) source(sync time.Duration, decoder decode.Decoder) (*apisource.Source, error) {
	cfg, err := m.base()
	if err != nil {
		return nil, err
	}
	if m.certFile != "" {
		cfg.Cert, cfg.Key = remote.Text{Path: m.certFile}, remote.Text{Path: m.keyFile}
	}
	if m.caFile != "" {
		cfg.CA, cfg.Insecure = remote.Text{Path: m.caFile}, false
	}
	if m.insecure {
		cfg.CA, cfg.Insecure = remote.Text{}, true
	}
	if m.tokenFile != "" {
		cfg.Token = remote.Text{Path: m.tokenFile}
	}
	cfg.APIVersion, cfg.SyncPeriod, cfg.Decoder = m.apiVersion, sync, decoder
	return apisource.New(cfg)
}

// base is what the address and the kubeconfig say, before the other flags.
func (m *masterOptions) base() (cfg apisource.Config, err error) {
	if m.address == inCluster {
		return apisource.InPod()
	}
	if m.kubeconfig != "" {
		cfg, err = apisource.LoadKubeconfig(m.kubeconfig)
	}
	cfg.Server = cmp.Or(m.address, cfg.Server)
	return cfg, err
}
