package etcdsource

import (
	"crypto/x509"
	"os"
	"path/filepath"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
)

// startTLS starts an etcd that shows a certificate of ca and demands one of clientCA, if given.
func startTLS(t *testing.T, ca, clientCA *etcdtest.CA) (*etcdtest.Process, *clientv3.Client) {
	t.Helper()
	cert, key := ca.Issue(t, "server")
	args := []string{"--cert-file=" + cert, "--key-file=" + key}
	files := etcdconfig.TLSFiles{CA: []string{ca.File}}
	if clientCA != nil {
		args = append(args, "--trusted-ca-file="+clientCA.File, "--client-cert-auth")
		files.Cert, files.Key = clientCA.Issue(t, "writer")
	}
	etcd := etcdtest.StartProcess(t, args...)
	return etcd, etcd.Client(t, func(cfg *clientv3.Config) { cfg.TLS = mustTLS(t, files).TLS })
}

// mustTLS is quick with these files.
func mustTLS(t *testing.T, files etcdconfig.TLSFiles, urls ...string) Config {
	t.Helper()
	cfg := quick(urls...)
	var err error
	if cfg.TLS, err = files.Config(); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestTheServerIsVerified(t *testing.T) { // D4
	ca := etcdtest.NewCA(t)
	etcd, c := startTLS(t, ca, nil)
	put(t, c, spec("a"), port(1))
	for _, test := range []struct {
		name   string
		files  etcdconfig.TLSFiles
		reason string // "" when it works
	}{
		{"by the right authority", etcdconfig.TLSFiles{CA: []string{ca.File}}, ""},
		{"by one of several", etcdconfig.TLSFiles{CA: []string{etcdtest.NewCA(t).File, ca.File}}, ""},
		{"by the wrong authority", etcdconfig.TLSFiles{CA: []string{etcdtest.NewCA(t).File}}, "certificate signed by unknown authority"},
		{"by the system's roots", etcdconfig.TLSFiles{}, "certificate signed by unknown authority"},
		{"not at all", etcdconfig.TLSFiles{InsecureSkipVerify: true}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := follow(t, mustTLS(t, test.files, etcd.URL()))
			if test.reason == "" {
				f.await(t, "a:1 | ")
				return
			}
			st := f.awaitStatus(t, test.reason, func(st config.Status) bool { return st.Ready || strings.Contains(st.Reason, test.reason) }) // a handshake that takes long has another
			if st.Ready {
				t.Errorf("%+v; want %q and nothing read", st, test.reason)
			}
		})
	}
	t.Run("by the right authority, for another host", func(t *testing.T) {
		cert, key := ca.Issue(t, "elsewhere", "etcd.example")
		etcd := etcdtest.StartProcess(t, "--cert-file="+cert, "--key-file="+key)
		f := follow(t, mustTLS(t, etcdconfig.TLSFiles{CA: []string{ca.File}}, etcd.URL()))
		st := f.awaitStatus(t, "the address that the certificate is not for", func(st config.Status) bool { return st.Ready || strings.Contains(st.Reason, "127.0.0.1") })
		if st.Ready {
			t.Errorf("%+v; want the address that the certificate is not for, and nothing read", st)
		}
	})
}

func TestTheClientShowsItsCertificateAndItsSuccessor(t *testing.T) {
	ca, clientCA := etcdtest.NewCA(t), etcdtest.NewCA(t)
	etcd, c := startTLS(t, ca, clientCA)
	put(t, c, spec("a"), port(1))

	f := follow(t, mustTLS(t, etcdconfig.TLSFiles{CA: []string{ca.File}}, etcd.URL()))
	st := f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" })
	if st.Ready {
		t.Errorf("%+v without a certificate; want nothing read", st)
	}
	f.stop()

	// A certificate that this server does not take yet, then one that it takes, in the same files.
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "client.crt"), filepath.Join(dir, "client.key")
	install := func(ca *etcdtest.CA, name string) {
		newCert, newKey := ca.Issue(t, name)
		for from, to := range map[string]string{newCert: cert, newKey: key} {
			if err := os.Rename(from, to); err != nil {
				t.Fatal(err)
			}
		}
	}
	install(etcdtest.NewCA(t), "stranger")
	f = follow(t, mustTLS(t, etcdconfig.TLSFiles{CA: []string{ca.File}, Cert: cert, Key: key}, etcd.URL()))
	f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" })
	install(clientCA, "proxy")
	f.await(t, "a:1 | ")

	// A replacement that went wrong leaves the last good one in use.
	if err := os.WriteFile(key, []byte("half a k"), 0o600); err != nil {
		t.Fatal(err)
	}
	log := logSince(t)
	etcd.Kill()
	etcd.Start(t)
	f.awaitStatus(t, "a second session", func(st config.Status) bool { return st.Sessions == 2 })
	if n := strings.Count(log(), "using the one from before"); n != 1 {
		t.Errorf("%d warnings about the new certificate; want one:\n%s", n, log())
	}
}

func TestTLSFilesThatCannotBeUsedAreNamed(t *testing.T) {
	ca := etcdtest.NewCA(t)
	cert, key := ca.Issue(t, "one")
	_, otherKey := ca.Issue(t, "other")
	empty := filepath.Join(t.TempDir(), "empty\n.crt")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		files etcdconfig.TLSFiles
		want  []string
	}{
		{etcdconfig.TLSFiles{Cert: cert}, []string{cert, "without its key"}},
		{etcdconfig.TLSFiles{Key: key}, []string{key, "without its certificate"}},
		{etcdconfig.TLSFiles{CA: []string{ca.File, "/no/such/ca"}}, []string{`CA file "/no/such/ca": no such file`}},
		{etcdconfig.TLSFiles{CA: []string{empty}}, []string{`empty\n.crt" holds no certificate`}},
		{etcdconfig.TLSFiles{CA: []string{key}}, []string{"holds no certificate"}},
		{etcdconfig.TLSFiles{Cert: cert, Key: otherKey}, []string{cert, "private key does not match public key"}},
		{etcdconfig.TLSFiles{Cert: cert, Key: "/no/such/key"}, []string{`"/no/such/key": no such file`}},
		{etcdconfig.TLSFiles{Cert: empty, Key: key}, []string{`empty\n.crt"`, "failed to find any PEM data"}},
	} {
		_, err := test.files.Config()
		if err == nil {
			t.Errorf("%+v: no error; want %q", test.files, test.want)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %q; want %q in it", test.files, err, want)
			}
		}
		if strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %q has more than one line", test.files, err)
		}
	}
	cfg, err := etcdconfig.TLSFiles{}.Config()
	if cfg != nil || err != nil {
		t.Errorf("no files: %v, %v; want nothing", cfg, err)
	}
	cfg, err = etcdconfig.TLSFiles{CA: []string{ca.File}}.Config()
	if err != nil || cfg.InsecureSkipVerify || cfg.RootCAs.Equal(x509.NewCertPool()) || cfg.GetClientCertificate != nil {
		t.Errorf("a CA alone: %+v, %v; want verification by it, and no certificate of ours", cfg, err)
	}
}

// The CA file is read again at each connection: an etcd whose certificate comes from another authority is
// believed once the file holds that authority. A half-written file is not used.
func TestAReplacedAuthorityIsUsedWithTheNextConnection(t *testing.T) {
	old, successor := etcdtest.NewCA(t), etcdtest.NewCA(t)
	file := filepath.Join(t.TempDir(), "ca.crt")
	install := func(text []byte) {
		t.Helper()
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pem := func(ca *etcdtest.CA) []byte {
		t.Helper()
		text, err := os.ReadFile(ca.File)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	install(pem(old))
	etcd, c := startTLS(t, successor, nil)
	put(t, c, spec("a"), port(1))
	files := etcdconfig.TLSFiles{CA: []string{file}}
	cfg := mustTLS(t, files, etcd.URL())
	cfg.RootCAs = files.Roots()
	f := follow(t, cfg)
	f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" && !st.Ready })
	install(pem(successor))
	f.await(t, "a:1 | ")
	install([]byte("half a certif"))
	etcd.Kill()
	etcd.Start(t)
	f.awaitStatus(t, "a second session", func(st config.Status) bool { return st.Sessions == 2 })
}
