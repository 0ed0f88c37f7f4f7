package etcdconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"kubeproxy/config/etcdsource/etcdtest"
)

// writeFile puts text into a file of the test's own.
func writeFile(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "etcd-config.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOldConfigFilesMeanWhatTheyMeant(t *testing.T) {
	three := []string{"http://10.240.0.11:4001", "http://10.240.0.12:4001", "http://10.240.0.13:4001"}
	for file, want := range map[string]Config{
		"etcd-config.json":                  {Endpoints: three, DialTimeout: time.Second},
		"etcd-config-minimal.json":          {Endpoints: []string{"http://127.0.0.1:4001"}},
		"etcd-config-no-leader.json":        {Endpoints: []string{"http://127.0.0.1:4001"}}, // D7
		"etcd-config-leader-only.json":      {Endpoints: []string{"http://127.0.0.1:4001"}},
		"etcd-config-weak.json":             {Endpoints: three, Weak: true},
		"etcd-config-case-insensitive.json": {Endpoints: []string{"http://127.0.0.1:4001"}, DialTimeout: 2 * time.Second},
		"bad-etcd-config-no-scheme.json":    {Endpoints: []string{"127.0.0.1:4001"}}, // D3: it never worked, and does now
	} {
		t.Run(file, func(t *testing.T) {
			got, warnings, err := LoadConfigFile("testdata/" + file)
			if err != nil || len(warnings) > 0 {
				t.Fatalf("%v, warnings %q; want neither", err, warnings)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("not as wanted (-want +got):\n%s", diff)
			}
			if _, err := got.Complete(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOldConfigFilesWithCertificates(t *testing.T) {
	// The files of the fixtures are those of other machines: put ours in their place.
	ca := etcdtest.NewCA(t)
	cert, key := ca.Issue(t, "client")
	ours := strings.NewReplacer("/etc/kubernetes/etcd-ca.crt", ca.File,
		"/etc/kubernetes/etcd-client.crt", cert, "/etc/kubernetes/etcd-client.key", key)
	for file, shows := range map[string]bool{"etcd-config-tls.json": true, "etcd-config-ca-only.json": false} {
		text, err := os.ReadFile("testdata/" + file)
		if err != nil {
			t.Fatal(err)
		}
		cfg, warnings, err := LoadConfigFile(writeFile(t, ours.Replace(string(text))))
		if err != nil || len(warnings) > 0 {
			t.Fatalf("%s: %v, warnings %q; want neither", file, err, warnings)
		}
		if cfg.TLS == nil || cfg.TLS.InsecureSkipVerify || cfg.TLS.RootCAs == nil || (cfg.TLS.GetClientCertificate != nil) != shows {
			t.Errorf("%s: TLS %+v; want verification by the CA, and our certificate shown: %v", file, cfg.TLS, shows)
		}
		if _, err := cfg.Complete(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

func TestConfigFilesThatCannotBeUsedAreRefusedInOneLine(t *testing.T) {
	const cluster = `"cluster":{"machines":["http://h:1"]}`
	cases := map[string]string{ // file or text → part of the reason
		"bad-etcd-config-no-cluster.json":           `no "cluster"`, // D6
		"bad-etcd-config-empty-object.json":         `no "cluster"`,
		"bad-etcd-config-empty-file.json":           "the file is empty",
		"bad-etcd-config-timeout-string.json":       "timeout",
		"bad-etcd-config-cert-no-key.json":          "without its key",
		"bad-etcd-config-key-no-cert.json":          "without its certificate",
		"bad-etcd-config-missing-ca-file.json":      `"/nonexistent/ca.crt": no such file`,
		"bad-etcd-config-machines-string.json":      "machines",
		"bad-etcd-config-empty-machines.json":       `no "machines" and no "leader"`,
		"bad-etcd-config-yaml.json":                 "invalid character",
		"nowhere.json":                              "no such file",
		"null":                                      `no "cluster"`,
		`{` + cluster + `} {}`:                      "after top-level value",
		`{` + cluster + `,"config":{"timeout":-1}}`: `negative "timeout" -1`,
		`{` + cluster + `,"config":{"timeout":` + strings.Repeat("9", 100000) + `}}`: "cannot unmarshal number",
		`{"cluster":{"machines":[""]}}`:                                              "empty etcd URL",
		`{"cluster":{"leader":"ftp://h:1"}}`:                                         "neither http nor https",
		`{"cluster":{"leader":"http://h:1","machines":["https://h:2"]}}`:             "some are https",
		`{"cluster":{"leader":"http://me:secret@h:1"}}`:                              `"http://…@h:1" holds a user`,
		strings.Repeat(" ", 1<<20+1):                                                 "larger than",
		"{\"cluster\":{\"leader\":\"h:1\"},\"\n\x00":                                 "invalid character",
	}
	for text, want := range cases {
		path := "testdata/" + text
		if !strings.HasSuffix(text, ".json") {
			path = writeFile(t, text)
		}
		_, _, err := LoadConfigFile(path)
		if err == nil {
			t.Errorf("%.60q: no error; want %q", text, want)
			continue
		}
		if s := err.Error(); !strings.Contains(s, want) || !strings.Contains(s, filepath.Base(path)) || !isShortLine(s) || strings.Contains(s, "secret") {
			t.Errorf("%.60q: %q; want one short line with the file's name and %q", text, s, want)
		}
	}
}

// isShortLine reports whether s may stand in a log.
func isShortLine(s string) bool {
	return len(s) < 1000 && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func TestConfigFilesThatAskForWhatIsNotDoneAreWarnedOf(t *testing.T) {
	for text, want := range map[string]string{
		`{"config":{"consistency":"strong\nish"},"cluster":{"leader":"http://h:1"}}`: `unknown consistency "strong\nish"`,
		`{"cluster":{"leader":"https://h:1"}}`:                                       "verified with the roots of the system", // D4
	} {
		cfg, warnings, err := LoadConfigFile(writeFile(t, text))
		if err != nil || cfg.Weak {
			t.Errorf("%s: %+v, %v; want it to work, strongly", text, cfg, err)
		}
		if len(warnings) != 1 || !strings.Contains(warnings[0], want) || !isShortLine(warnings[0]) {
			t.Errorf("%s: warnings %q; want one with %q", text, warnings, want)
		}
	}
}

func TestAConfigIsChecked(t *testing.T) {
	for _, test := range []struct {
		name string
		cfg  Config
		want string // part of the error; "" when it is right
	}{
		{"nothing", Config{}, "no etcd URL"},
		{"defaults", Config{Endpoints: []string{"h:1"}}, ""},
		{"blanks, a slash, and one twice", Config{Endpoints: []string{" http://h:1", "http://h:1/ ", "h:1"}}, ""},
		{"IPv6", Config{Endpoints: []string{"http://[::1]:2379"}}, ""},
		{"no port", Config{Endpoints: []string{"http://h"}}, `"http://h" has no port`},
		{"no host", Config{Endpoints: []string{"http://:2379"}}, "has no host"},
		{"another scheme", Config{Endpoints: []string{"unix:///x"}}, "neither http nor https"},
		{"a path", Config{Endpoints: []string{"http://h:1/v2"}}, "something after host and port"},
		{"a bad port", Config{Endpoints: []string{"http://h:p"}}, "does not parse"},
		{"a secret in a bad URL", Config{Endpoints: []string{"http://me:secret@h:p"}}, `"http://…@h:p" does not parse`},
		{"two schemes", Config{Endpoints: []string{"h:1", "https://h:1"}}, "some are https"},
		{"half a user", Config{Endpoints: []string{"h:1"}, Username: "u"}, "without password"},
		{"half a user", Config{Endpoints: []string{"h:1"}, Password: "secret"}, "password without user"},
		{"a negative period", Config{Endpoints: []string{"h:1"}, SyncPeriod: -1}, "negative sync period -1ns"},
		{"a negative page", Config{Endpoints: []string{"h:1"}, PageSize: -1}, "negative page size -1"},
	} {
		_, err := test.cfg.Complete()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "secret")):
			t.Errorf("%s: %v; want %q", test.name, err, test.want)
		}
	}
	cfg, err := Config{Endpoints: []string{" http://h:1", "http://h:1/ ", "h:1", "g:1"}}.Complete()
	want := Config{
		Endpoints: []string{"http://h:1", "http://g:1"}, DialTimeout: DefaultDialTimeout, SyncPeriod: DefaultSyncPeriod,
		RequestTimeout: DefaultRequestTimeout, ProbePeriod: DefaultProbePeriod,
	}
	if diff := cmp.Diff(want, cfg); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
}

// No file can make us panic, wait, or write more than a line.
func FuzzLoadConfigFile(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, warnings, err := parseConfigFile(data)
		if err != nil {
			warnings = append(warnings, err.Error())
		} else if _, err := cfg.Complete(); err != nil {
			t.Errorf("accepted, but cannot be used: %v", err)
		}
		for _, line := range warnings {
			if !isShortLine(line) {
				t.Errorf("not one short line: %q", line)
			}
		}
	})
}
