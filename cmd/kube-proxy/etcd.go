package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golang/glog"
	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource"
	"kubeproxy/config/etcdv2source"
	"kubeproxy/config/remote"
	"kubeproxy/config/witness"
)

// etcdOptions says where etcd is and how to talk to it. The files are read only when the source is made.
type etcdOptions struct {
	servers    commandline.List
	configFile string
	version    string
	holderKeys commandline.List
	patroni    string
	patroniTLS etcdconfig.TLSFiles
	caFile     string
	insecure   bool

	certFile, keyFile      string
	username, passwordFile string
}

func (e *etcdOptions) addFlags(c *commandline.Command) {
	c.Group(topicRegistry, func(f *pflag.FlagSet) {
		f.Var(&e.servers, "etcd_servers", "the etcd to watch: `URLs` of its members, separated by commas; repeat to add more")
		f.Var(commandline.Choice(&e.version, etcdAuto, etcd2, etcd3), "etcd_version", "`version` of etcd: 3, 2 (its v2 API), or auto to ask its members")
		f.StringVar(&e.configFile, "etcd_config", "", "`file` with etcd client settings as go-etcd saved them (JSON)")
	})
	c.Group(topicSecurity, func(f *pflag.FlagSet) {
		f.Var((*commandline.List)(&e.patroniTLS.CA), "patroni_cafile", "CA `files` that verifies the certificates of Patroni's REST APIs (PEM), where a service has them asked (kube-proxy/patroni-stale, patroni-unpromoted); repeat to add more; the system's if not given")
		f.StringVar(&e.patroniTLS.Cert, "patroni_certfile", "", "`file` with the proxy's certificate for Patroni's REST APIs (PEM)")
		f.StringVar(&e.patroniTLS.Key, "patroni_keyfile", "", "`file` with the key of -patroni_certfile (PEM)")
		f.StringVar(&e.patroni, "patroni", "", "`prefix` of etcd 3 below which clusters of Patroni have their keys, such as /service/: records may name them (kube-proxy/patroni); empty: none")
		f.Var(&e.holderKeys, "holder_keys", "`prefixes` of keys of etcd 3 by which records may have endpoints elected (kube-proxy/holder-key), separated by commas; repeat to add more; empty: none")
		f.StringVar(&e.caFile, "etcd_cafile", "", "CA `file` that verifies etcd's certificate (PEM); the system's if not given")
		f.StringVar(&e.certFile, "etcd_certfile", "", "`file` with the proxy's certificate for etcd (PEM)")
		f.StringVar(&e.keyFile, "etcd_keyfile", "", "`file` with the key of -etcd_certfile (PEM)")
		f.BoolVar(&e.insecure, "etcd_insecure_skip_tls_verify", false, "do not verify etcd's certificate")
		f.StringVar(&e.username, "etcd_username", "", "`user` to log in to etcd as")
		f.StringVar(&e.passwordFile, "etcd_password_file", "", "`file` with the password of -etcd_username")
	})
}

// given reports whether the flags name an etcd.
func (e *etcdOptions) given() bool { return len(e.servers) > 0 || e.configFile != "" }

func (e *etcdOptions) contradiction() error {
	switch {
	case len(e.servers) > 0 && e.configFile != "": // D1
		return errors.New("-etcd_servers and -etcd_config are mutually exclusive")
	case (e.certFile == "") != (e.keyFile == ""):
		return errors.New("-etcd_certfile and -etcd_keyfile need each other")
	case (e.username == "") != (e.passwordFile == ""):
		return errors.New("-etcd_username and -etcd_password_file need each other")
	case e.caFile != "" && e.insecure:
		return errors.New("-etcd_cafile and -etcd_insecure_skip_tls_verify are mutually exclusive")
	}
	if len(e.servers) == 0 {
		return nil
	}
	if _, err := etcdsource.New(etcdsource.Config{Endpoints: e.servers}); err != nil {
		return fmt.Errorf("-etcd_servers: %w", err)
	}
	if e.wantsTLS() && !encrypted(e.servers) { // better than to talk in the clear to the surprise of all
		return errors.New(errPlain + " of -etcd_servers")
	}
	return nil
}

// ignoredContradiction reports URLs with a user, where an API server is read instead. Nothing else of them counts then, but they are shown
// to operators all the same.
func (e *etcdOptions) ignoredContradiction() error {
	for _, s := range e.servers {
		if remote.Redact(s) != s {
			return fmt.Errorf("-etcd_servers: %w", remote.WrongURL("etcd URL", s, "holds a user: credentials have settings of their own"))
		}
	}
	return nil
}

// config makes of the flags what the etcd source needs to know. It reads the files that they name.
func (e *etcdOptions) config(sync time.Duration) (etcdsource.Config, error) {
	return e.configFor(nil, sync)
}

// configFor is config for an etcd at other URLs, if there are any.
func (e *etcdOptions) configFor(others []string, sync time.Duration) (etcdsource.Config, error) {
	cfg, from := etcdsource.Config{Endpoints: e.servers}, e.configFile
	var err error
	if e.configFile != "" {
		var warnings []string
		if cfg, warnings, err = etcdconfig.LoadConfigFile(e.configFile); err != nil {
			return cfg, err
		}
		for _, w := range warnings {
			glog.Warning(w)
		}
	}
	if len(others) > 0 {
		if encrypted(cfg.Endpoints) && !encrypted(others) {
			return cfg, errors.New("https is in none of its URLs, and in those of the first etcd")
		}
		cfg.Endpoints, from = others, "-against"
	}
	if e.wantsTLS() {
		if !encrypted(cfg.Endpoints) {
			return cfg, errors.New(errPlain + " of " + from)
		}
		files := etcdconfig.TLSFiles{Cert: e.certFile, Key: e.keyFile, InsecureSkipVerify: e.insecure}
		if e.caFile != "" {
			files.CA = []string{e.caFile}
		}
		cfg.RootCAs = files.Roots()
		if cfg.TLS, err = files.Config(); err != nil {
			return cfg, err
		}
	}
	if e.username != "" {
		cfg.Username = e.username
		if cfg.Password, err = etcdconfig.ReadPassword(e.passwordFile); err != nil {
			return cfg, fmt.Errorf("-etcd_password_file: %w", err)
		}
		if info, err := os.Stat(e.passwordFile); err == nil && info.Mode().Perm()&0o004 != 0 {
			glog.Warningf("password file %s can be read by every user of this machine", e.passwordFile)
		}
		cfg.ReadPassword = func() (string, error) { return etcdconfig.ReadPassword(e.passwordFile) }
		if !encrypted(cfg.Endpoints) {
			glog.Warningf("the password of %s crosses the network in the clear: the URLs of etcd are not https", e.username)
		}
	}
	cfg.SyncPeriod, cfg.HolderKeys, cfg.Patroni = sync, e.holderKeys, e.patroni
	return cfg, nil
}

// source makes the source for the etcd that cfg names.
func (e *etcdOptions) source(cfg etcdsource.Config) (config.Source, error) {
	var v3 config.Source
	etcd, err := etcdsource.New(cfg)
	if v3 = etcd; err == nil && e.patroni != "" {
		v3, err = witness.New(etcd, e.patroniTLS)
	}
	if err != nil || e.version == etcd3 {
		return v3, err
	}
	v2, err := etcdv2source.New(cfg)
	if err != nil || e.version == etcd2 {
		return v2, err
	}
	cfg, err = cfg.Complete()
	return etcdv2source.NewAuto(cfg, v2, v3), err
}

// Values of -etcd_version.
const (
	etcdAuto = "auto"
	etcd2    = "2"
	etcd3    = "3"
)

// wantsTLS reports whether a flag says something about TLS. Then what the config file says about it
// no longer counts: parts of both together would be hard to predict.
func (e *etcdOptions) wantsTLS() bool {
	return e.caFile != "" || e.certFile != "" || e.insecure
}

// encrypted reports whether any of these URLs is https.
func encrypted(urls []string) bool {
	return slices.ContainsFunc(urls, func(s string) bool { return strings.HasPrefix(s, "https://") })
}

const errPlain = "flags about TLS are given, but https is in none of the URLs"
