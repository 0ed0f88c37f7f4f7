package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/golang/glog"

	"kubeproxy/config/etcdsource"
)

// source makes of the flags what the etcd source needs to know. It reads the files that they name.
func (e *etcdOptions) source() (etcdsource.Config, error) {
	cfg := etcdsource.Config{Endpoints: e.servers}
	var err error
	if e.configFile != "" {
		var warnings []string
		if cfg, warnings, err = etcdsource.LoadConfigFile(e.configFile); err != nil {
			return cfg, err
		}
		for _, w := range warnings {
			glog.Warning(w)
		}
	}
	if e.wantsTLS() {
		if !encrypted(cfg.Endpoints) {
			return cfg, errors.New(errPlain + " of " + e.configFile)
		}
		files := etcdsource.TLSFiles{Cert: e.certFile, Key: e.keyFile, InsecureSkipVerify: e.insecure}
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
		if cfg.Password, err = readPassword(e.passwordFile); err != nil {
			return cfg, fmt.Errorf("-etcd_password_file: %w", err)
		}
		if info, err := os.Stat(e.passwordFile); err == nil && info.Mode().Perm()&0o004 != 0 {
			glog.Warningf("password file %s can be read by every user of this machine", e.passwordFile)
		}
		cfg.ReadPassword = func() (string, error) { return readPassword(e.passwordFile) }
		if !encrypted(cfg.Endpoints) {
			glog.Warningf("the password of %s crosses the network in the clear: the URLs of etcd are not https", e.username)
		}
	}
	cfg.SyncPeriod = e.sync.Duration
	return cfg, nil
}

// wantsTLS tells whether a flag says something about TLS. Then what the config file says about it
// no longer counts: half of the one and half of the other would be hard to foresee.
func (e *etcdOptions) wantsTLS() bool {
	return e.caFile != "" || e.certFile != "" || e.insecure
}

// encrypted tells whether any of these URLs is https.
func encrypted(urls []string) bool {
	return slices.ContainsFunc(urls, func(s string) bool { return strings.HasPrefix(s, "https://") })
}

const errPlain = "flags about TLS are given, but https is in none of the URLs"

// readPassword reads a password from a file, without the end of line that editors leave there.
func readPassword(path string) (string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	password := strings.TrimSuffix(strings.TrimSuffix(string(text), "\n"), "\r")
	if password == "" {
		return "", fmt.Errorf("%s is empty", path)
	}
	return password, nil
}
