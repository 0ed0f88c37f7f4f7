package commandline

import (
	"bytes"
	"strings"
	"testing"

	"kubeproxy/cmd/internal/programtest"
)

// helped is what help prints about words.
func helped(t *testing.T, words ...string) string {
	t.Helper()
	var text bytes.Buffer
	if err := sampleManual().Help(&text, words); err != nil {
		t.Fatalf("help %q: %v", words, err)
	}
	return text.String()
}

func TestHelpIsOfferedFromTheOverviewDownToAFlag(t *testing.T) {
	for _, tt := range []struct {
		words    string
		has, not []string
	}{
		{"", []string{"kube-proxy check [flags] [DIRECTORY]      judges records\n", "  -etcd_servers URLs\n", "  listening  addresses\n"}, []string{"-bind_address"}},
		{"help", []string{"Usage of kube-proxy:"}, nil},
		{"listening", []string{"\n  -bind_address address\n      address to bind to\n", "(default half of what there is: 17 here)"}, []string{"-etcd_servers"}},
		{"registry", []string{"-etcd_servers", "Registry: where services are read from (of kube-proxy check)\n\n  -lines number\n"}, []string{"secret"}},
		{"check", []string{"Usage of kube-proxy check:", "-registry_dir directory", "-lines"}, []string{"secret", "-engine"}},
		{"engine", []string{"\nListening: addresses\n\n  -engine engine\n"}, []string{"check"}},
		{"--bind-address", []string{"-bind_address"}, nil},
		{"lines", []string{"Registry: where services are read from (of kube-proxy check)"}, nil},
		{"v", []string{"  -v level\n"}, nil},
		{"all", []string{"-etcd_servers", "-lines", "-vmodule", "-logtostderr\n      log to standard error (default true; =false turns it off)\n", "-help"}, []string{"secret"}},
	} {
		got := helped(t, strings.Fields(tt.words)...)
		for _, part := range tt.has {
			if !strings.Contains(got, part) {
				t.Errorf("help %s does not have %q:\n%s", tt.words, part, got)
			}
		}
		for _, part := range tt.not {
			if strings.Contains(got, part) {
				t.Errorf("help %s has %q:\n%s", tt.words, part, got)
			}
		}
		for line := range strings.Lines(got) {
			if len(line) > 81 && tt.words != "" && tt.words != "help" {
				t.Errorf("help %s: %q is longer than 80 letters", tt.words, line)
			}
		}
	}
	for _, words := range [][]string{{"nothing"}, {"v", "engine"}, {"completion"}, {"completion", "csh"}, {"secret"}} {
		if err := sampleManual().Help(new(bytes.Buffer), words); err == nil {
			t.Errorf("help %q is no error", words)
		}
	}
}

// A flag that two commands share is explained once.
func TestHelpExplainsAFlagOnce(t *testing.T) {
	if got := strings.Count(helped(t, "all"), "  -registry_dir "); got != 1 {
		t.Errorf("-registry_dir is explained %d times", got)
	}
}

// The man page is the same on every machine: a derived default is told as its formula.
func TestTheManPageIsWellFormed(t *testing.T) {
	page := helped(t, "man")
	programtest.CheckManPage(t, page)
	for _, want := range []string{".Dt KUBE-PROXY 8\n", ".Sh NAME\n.Nm kube-proxy\n", ".It Fl etcd_servers Ns = Ns Ar \"URLs\"\n", "(default half of what there is)",
		`C:\edir`, "\n\\&.no effect", ".Sh SIGNALS\n", ".It Fl logtostderr\n", ".It Fl lines"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not have %q", want)
		}
	}
	for _, not := range []string{"17 here", "secret", "`"} {
		if strings.Contains(page, not) {
			t.Errorf("the page has %q", not)
		}
	}
}
