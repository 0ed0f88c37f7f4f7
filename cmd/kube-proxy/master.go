package main

import (
	"errors"

	"github.com/spf13/pflag"
)

// masterOptions are v0.4's flags for reading services from the Kubernetes API, which cannot be done
// yet. They are parsed, so that a bad value is still a bad value.
type masterOptions struct {
	address    string
	apiVersion string
	insecure   bool
	certFile   string
	keyFile    string
	caFile     string
}

func (m *masterOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&m.address, "master", "", "`address` of the Kubernetes API to read from instead of etcd (not there yet)")
	f.StringVar(&m.apiVersion, "api_version", "", "with -master: `version` of the API, v1beta1 or v1beta2")
	f.BoolVar(&m.insecure, "insecure_skip_tls_verify", false, "with -master: believe any server")
	f.StringVar(&m.certFile, "client_certificate", "", "with -master: `file` with the client certificate")
	f.StringVar(&m.keyFile, "client_key", "", "with -master: `file` with the client key")
	f.StringVar(&m.caFile, "certificate_authority", "", "with -master: `file` with the authorities")
}

// onlyForMaster are the names of the flags that mean nothing without -master.
var onlyForMaster = []string{"api_version", "insecure_skip_tls_verify", "client_certificate", "client_key", "certificate_authority"}

// given reports whether the flags name an API server.
func (m *masterOptions) given() bool { return m.address != "" }

var errMaster = errors.New("-master is not there yet: services can only be read from etcd, with -etcd_servers or -etcd_config")
