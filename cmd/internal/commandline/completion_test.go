package commandline

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// complete has bash complete the last of these words in a directory with the file f.txt and the directory d.
func complete(t *testing.T, words ...string) []string {
	t.Helper()
	dir := t.TempDir()
	for _, err := range []error{
		os.WriteFile(filepath.Join(dir, "completion"), []byte(helped(t, "completion", "bash")), 0o644),
		os.WriteFile(filepath.Join(dir, "f.txt"), nil, 0o644), os.Mkdir(filepath.Join(dir, "d"), 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	const script = `set -eu; source ./completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
_kube_proxy kube-proxy || true; printf '%s\n' "${COMPREPLY[@]}"`
	cmd := exec.Command("bash", append([]string{"-c", script, "bash"}, words...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash: %v\n%s", err, out)
	}
	return strings.Fields(string(out))
}

func TestBashCompletesFlagsCommandsTopicsAndFiles(t *testing.T) {
	for _, tt := range []struct{ words, want string }{ // a dot stands for an empty word
		{"kube-proxy .", "check help"},
		{"kube-proxy ch", "check"},
		{"kube-proxy -etcd_s", "-etcd_servers"},
		{"kube-proxy -v=1 -eng", "-engine"},
		{"kube-proxy -engine = .", "auto epoll portable"},
		{"kube-proxy -engine =", "auto epoll portable"},
		{"kube-proxy --engine = e", "epoll"},
		{"kube-proxy -engine p", "portable"},
		{"kube-proxy -logtostderr = f", "false"},
		{"kube-proxy -logtostderr -logto", "-logtostderr"}, // a boolean takes no argument
		{"kube-proxy -bind_address .", ""},                 // nothing is known of the value
		{"kube-proxy -registry_dir = .", "d"},
		{"kube-proxy -etcd_config f", "f.txt"},
		{"kube-proxy -etcd-config = f", "f.txt"},
		{"kube-proxy check -l", "-lines"},
		{"kube-proxy check -reg", "-registry_dir"},
		{"kube-proxy check -eng", ""},
		{"kube-proxy check .", "d"},
		{"kube-proxy help lis", "listening"},
		{"kube-proxy help completion .", "bash zsh"},
		{"kube-proxy -v = 1 check", ""}, // commands come first
	} {
		words := strings.Fields(tt.words)
		for i := range words {
			if words[i] == "." {
				words[i] = ""
			}
		}
		got := complete(t, words...)
		slices.Sort(got)
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q, want %s", tt.words, got, tt.want)
		}
	}
}

func TestTheShellsUnderstandTheCompletions(t *testing.T) {
	for _, shell := range []string{"bash", "zsh"} {
		t.Run(shell, func(t *testing.T) {
			script := helped(t, "completion", shell)
			if strings.Contains(script, "secret") || !strings.Contains(script, "etcd_servers") {
				t.Errorf("the completions have a hidden flag, or lack one:\n%s", script)
			}
			path, err := exec.LookPath(shell)
			if err != nil && shell == "zsh" {
				t.Log("no zsh on this machine: its completions were not read by it")
				return
			}
			file := filepath.Join(t.TempDir(), "completion")
			if err := os.WriteFile(file, []byte(script), 0o644); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.Command(path, "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s -n: %v\n%s", shell, err, out)
			}
		})
	}
}

// A description may have letters that mean something to zsh.
func TestTheTextOfAFlagIsQuotedForZsh(t *testing.T) {
	script := helped(t, "completion", "zsh")
	for _, want := range []string{
		`'-engine=[engine that moves the bytes\: it'\''s \[odd\] "quoted", 10\:00, C\:\\dir]:engine:(epoll portable auto)'`,
		`'-logtostderr[log to standard error]'`,
		`'-registry_dir=[directory with records]:directory:_files -/'`,
		`'check:judges records'`,
	} {
		if !strings.Contains(script, want) {
			t.Errorf("the completions do not have %s:\n%s", want, script)
		}
	}
}
