package apisource

import (
	"kubeproxy/config/remote"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheURLOfTheServerIsChecked(t *testing.T) {
	ca := Credentials{CA: remote.Text{Data: []byte("x")}}
	for _, test := range []struct {
		server string
		creds  Credentials
		want   string // the URL, or a part of the error
	}{
		{"http://127.0.0.1:8080", Credentials{}, "http://127.0.0.1:8080"},
		{" http://127.0.0.1:8080/ ", Credentials{}, "http://127.0.0.1:8080"},
		{"https://host/k8s/clusters/c-1/", Credentials{}, "https://host/k8s/clusters/c-1"},
		{"127.0.0.1:8080", Credentials{}, "http://127.0.0.1:8080"}, // v0.4 built with a new Go: fatal
		{"master:8080", Credentials{}, "http://master:8080"},       // v0.4: a URL of scheme master
		{"master:6443", ca, "https://master:6443"},
		{"master:6443", Credentials{Token: remote.Text{Path: "f"}}, "https://master:6443"},
		{"", Credentials{}, "empty URL"},
		{"ftp://h", Credentials{}, "neither http nor https"},
		{"http://", Credentials{}, "has no host"},
		{"http://scott:tiger@h:1", Credentials{}, `"http://…@h:1" holds a user`},
		{"http://h:1/?a=b", Credentials{}, "something after its path"},
		{"http://scott:tiger@h:x", Credentials{}, `"http://…@h:x" does not parse`},
		{"http://h:1", ca, "is not https"},
	} {
		cfg, err := Config{Server: test.server, Credentials: test.creds}.withDefaults()
		if err == nil && cfg.Server != test.want || err != nil && !strings.Contains(err.Error(), test.want) || err != nil && strings.Contains(err.Error(), "tiger") {
			t.Errorf("%q: %q, %v; want %q", test.server, cfg.Server, err, test.want)
		}
	}
	for _, cfg := range []Config{{Server: "h", APIVersion: "v9"}, {Server: "h", SyncPeriod: -1}, {Server: "h", PageSize: -1}} {
		if _, err := New(cfg); err == nil {
			t.Errorf("%+v: no error", cfg)
		}
	}
}

const goodKubeconfig = `
apiVersion: v1
kind: Config
current-context: two
contexts:
- {name: one, context: {cluster: missing, user: missing}}
- {name: two, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster: {server: "https://10.0.0.1:6443", certificate-authority: ca.crt, tls-server-name: kubernetes}
users:
- name: u
  user: {client-certificate-data: Y2VydA==, client-key: /abs/key, token: inline, tokenFile: token}
`

func TestAKubeconfigMeansItsCurrentContext(t *testing.T) {
	dir := t.TempDir()
	cfg, err := LoadKubeconfig(writeFile(t, dir, "config", goodKubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Server != "https://10.0.0.1:6443" || cfg.CA.Path != filepath.Join(dir, "ca.crt") || cfg.ServerName != "kubernetes" || cfg.Insecure ||
		string(cfg.Cert.Data) != "cert" || cfg.Key.Path != "/abs/key" || cfg.Token.Path != filepath.Join(dir, "token") {
		t.Errorf("%+v", cfg)
	}
}

func TestAKubeconfigThatCannotBeUsedIsRefusedInOneLine(t *testing.T) {
	dir := t.TempDir()
	for _, test := range []struct{ old, new, want string }{
		{"current-context: two", "", "no current-context"},
		{"current-context: two", "current-context: three", `no context "three"`},
		{"current-context: two", "current-context: one", `no cluster "missing"`},
		{"user: u}", "user: nobody}", `no user "nobody"`},
		{"server:", "srv:", `cluster "c" has no server`},
		{"tls-server-name: kubernetes", "proxy-url: http://p", "proxy-url, which is not supported"},
		{"client-key: /abs/key", "exec: {command: aws}", "exec, which is not supported"},
		{"client-key: /abs/key", "auth-provider: {name: gcp}", "an auth-provider, which is not supported"},
		{"client-key: /abs/key", "username: scott, password: tiger", "username and password, which is not supported"},
		{"client-key: /abs/key", "as: root", "impersonation (as), which is not supported"},
		{"Y2VydA==", "tiger", "is none"},
		{"apiVersion", "\t{tiger", "is none"},
	} {
		path := writeFile(t, dir, "config", strings.Replace(goodKubeconfig, test.old, test.new, 1))
		_, err := LoadKubeconfig(path)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "tiger") {
			t.Errorf("%s: %v; want %q", test.new, err, test.want)
		}
	}
	if _, err := LoadKubeconfig(filepath.Join(dir, "none")); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is not there: %v", err)
	}
}

func TestAPodIsToldWhereItsServerIs(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
	t.Setenv("KUBERNETES_SERVICE_PORT", "443")
	cfg, err := InPod()
	if err != nil || cfg.Server != "https://[fd00::1]:443" || cfg.Token.Path != podToken || cfg.CA.Path != podCA {
		t.Errorf("%+v, %v", cfg, err)
	}
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	if _, err := InPod(); err == nil || !strings.Contains(err.Error(), "this is no pod") {
		t.Errorf("outside of a pod: %v", err)
	}
}

func TestCredentialsThatCannotBeUsedAreNamedByTheirFile(t *testing.T) {
	dir := t.TempDir()
	empty, text := writeFile(t, dir, "empty", "\n"), writeFile(t, dir, "text", "two words, tiger")
	for _, test := range []struct {
		creds Credentials
		want  string
	}{
		{Credentials{CA: remote.Text{Path: filepath.Join(dir, "none")}}, `none": no such file`},
		{Credentials{CA: remote.Text{Path: text}}, `text" holds no certificate`},
		{Credentials{Cert: remote.Text{Path: text}}, "without its key"},
		{Credentials{Cert: remote.Text{Path: text}, Key: remote.Text{Path: text}}, `client certificate "`},
		{Credentials{Token: remote.Text{Path: empty}}, `empty" is empty`},
		{Credentials{Token: remote.Text{Path: text}}, "is no token"},
		{Credentials{CA: remote.Text{Path: text}, Insecure: true}, "one of them"},
	} {
		_, err := New(Config{Server: "https://h", Credentials: test.creds})
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "tiger") {
			t.Errorf("%+v: %v; want %q", test.creds, err, test.want)
		}
	}
}

func TestTheLocalPortOfTheServerIsKnown(t *testing.T) {
	for server, want := range map[string]uint16{
		"http://127.0.0.1:8080": 8080, "https://localhost": 443, "http://[::1]": 80, "https://192.0.2.1:6443": 0, "https://master:6443": 0,
	} {
		s, err := New(Config{Server: server})
		if err != nil {
			t.Fatal(err)
		}
		var got uint16
		for _, port := range s.LocalPorts(t.Context()) {
			got = port
		}
		if got != want {
			t.Errorf("%s: port %d; want %d", server, got, want)
		}
	}
}

// The server's certificate is verified, by the given authority and name, unless the configuration turns that off; and a server that wants a
// certificate of ours gets it.
func TestTheAPIServerIsVerified(t *testing.T) {
	server := httptest.NewTLSServer(apiVersionsOnly())
	defer server.Close()
	server.Config.ErrorLog = nil
	authority := remote.Text{Path: writeFile(t, t.TempDir(), "ca.crt", pemOf(server.Certificate().Raw))}
	for _, test := range []struct {
		name  string
		creds Credentials
		want  string
	}{
		{"by its authority", Credentials{CA: authority}, ""},
		{"by its authority and another name of it", Credentials{CA: authority, ServerName: "example.com"}, ""},
		{"with a name that it has not", Credentials{CA: authority, ServerName: "kubernetes"}, "x509: certificate is valid for"},
		{"by the system's roots", Credentials{}, "x509: certificate signed by unknown authority"},
		{"not at all", Credentials{Insecure: true}, ""},
	} {
		s, err := New(Config{Server: server.URL, Credentials: test.creds})
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.client.apiVersion(t.Context())
		s.client.close()
		switch {
		case test.want == "" && err != nil, test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || causeOf(err) != Insecure):
			t.Errorf("%s: %v (%v); want %q", test.name, err, causeOf(err), test.want)
		}
	}
}

func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
