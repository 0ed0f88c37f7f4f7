package commandline

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestKeysOfAFileAreFlags(t *testing.T) {
	got, notes, err := parse([]byte(`---
# of this node
etcd_servers: [http://a:1, "http://b:2"]
allowed_ports:
- 80
- 8000-8999
udp_timeout: 30s
v: 2
etcd_version: "2"
metrics_endpoints: true
"state_dir": ""
`))
	want := []Setting{
		{Flag: "allowed_ports", Values: []string{"80", "8000-8999"}, Where: "line 4: "},
		{Flag: "etcd_servers", Values: []string{"http://a:1", "http://b:2"}, Where: "line 3: "},
		{Flag: "etcd_version", Values: []string{"2"}, Where: "line 9: "},
		{Flag: "metrics_endpoints", Values: []string{"true"}, Where: "line 10: "},
		{Flag: "state_dir", Values: []string{""}, Where: "line 11: "},
		{Flag: "udp_timeout", Values: []string{"30s"}, Where: "line 7: "},
		{Flag: "v", Values: []string{"2"}, Where: "line 8: "},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil || notes != nil {
		t.Errorf("%v, %q: want (-), got (+):\n%s", err, notes, diff)
	}
	for _, empty := range []string{"", "# nothing\n", "---\n", "{}"} {
		if got, _, err := parse([]byte(empty)); len(got) > 0 || err != nil {
			t.Errorf("%q: got %v, %v; want nothing", empty, got, err)
		}
	}
}

func TestAFileThatMakesNoSenseIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		"v: [1":                    "yaml: line 1: did not find expected ',' or ']'",
		"v: 1\nv: 2\n":             `line 2: v is there already, in line 1 (several values are a list: [A, B])`,
		"w: {v: 1, v: 2}\n":        `key "v" already set in map`,
		"- v\n":                    `want names of flags with their values`,
		"just words":               `want names of flags with their values`,
		"v: 1\n---\nv: 2\n":        "there is more than one document",
		"v:\n":                     `line 1: v: has no value; "" is an empty one`,
		"a: 1\nv: {a: b}\n":        "line 2: v: wants a value or a list, and has further keys",
		"v: [[1]]\n":               "line 1: v: wants a list of words or numbers",
		"v: [[1, 2]]\n":            "line 1: v: wants a list of words or numbers",
		"v: [{a: b}]\n":            "line 1: v: wants a list of words or numbers",
		"kind: Pod\nv: 1\n":        `kind "Pod" of apiVersion (none) is unknown: want names of flags, or a KubeProxyConfiguration of kubeproxy.config.k8s.io/v1alpha1`,
		"apiVersion: {a: b}\n":     `kind (none) of apiVersion {"a":"b"} is unknown`,
		"\"a\\nb\":\n":             `"a\nb": has no value`,
		strings.Repeat("[", 20000): "yaml: ",
	} {
		settings, _, err := parse([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, %v; want %q", text, settings, err, want)
			continue
		}
		if len(err.Error()) > 400 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.40q: the error is not one short line: %q", text, err)
		}
	}
}

func TestAFileThatCannotBeReadIsNamed(t *testing.T) {
	dir := t.TempDir()
	large, pipe := filepath.Join(dir, "large"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(large, []byte("#"+strings.Repeat("x", maxFileSize)), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "missing"): "no such file or directory",
		dir:                           "not a regular file",
		pipe:                          "not a regular file",
		large:                         "larger than 256 KiB",
	} {
		if _, _, err := ReadFile(path); err == nil || err.Error() != `-config="`+path+`": `+want {
			t.Errorf("%s: got %v", want, err)
		}
	}
	exact := filepath.Join(dir, "exact")
	if err := os.WriteFile(exact, []byte("v: 1\n#"+strings.Repeat("x", maxFileSize-6)), 0o600); err != nil {
		t.Fatal(err)
	}
	if settings, _, err := ReadFile(exact); err != nil || len(settings) != 1 || settings[0].Where != `-config="`+exact+`": line 1: ` {
		t.Errorf("a file of the largest size: %v, %v", settings, err)
	}
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{"", "v: 1", "v: [1, a]", "v: {a: [b]}", "a: &a [*a]", "kind: KubeProxyConfiguration\napiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: x\nconntrack: {min: 1}"} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		settings, _, err := parse(text)
		if err != nil && len(settings) > 0 {
			t.Errorf("%q gives %v and %v", text, settings, err)
		}
		if err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: the error has several lines: %q", text, err)
		}
	})
}
