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
	return strings.Fields(strings.Join(completeLines(t, words...), "\n"))
}

// completeLines does so, for completions that may have spaces.
func completeLines(t *testing.T, words ...string) []string {
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
	const script = `set -eu; source ./completion; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=() COMP_LINE="$*"; COMP_LINE=${COMP_LINE// = /=}; COMP_POINT=${#COMP_LINE}
_kube_proxy kube-proxy || true; printf '%s\n' "${COMPREPLY[@]}"`
	cmd := exec.Command("bash", append([]string{"-c", script, "bash"}, words...)...)
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("bash: %v\n%s", err, out)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(s string) bool { return s == "" })
}

func TestBashCompletesFlagsCommandsTopicsAndFiles(t *testing.T) {
	for _, tt := range []struct{ words, want string }{ // a dot stands for an empty word
		{"kube-proxy .", "check drain help"},
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
		{"kube-proxy help completion .", "bash fish zsh"},
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
	for _, shell := range []string{"bash", "zsh", "fish"} {
		t.Run(shell, func(t *testing.T) {
			script := helped(t, "completion", shell)
			if strings.Contains(script, "secret") || !strings.Contains(script, "etcd_servers") {
				t.Errorf("the completions have a hidden flag, or lack one:\n%s", script)
			}
			path, err := exec.LookPath(shell)
			if err != nil && shell != "bash" {
				t.Logf("no %s on this machine: its completions were not read by it", shell)
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

// aNode is a program that answers as kube-proxy names does, also with what a shell could take for a command.
const aNode = `#!/bin/sh
case "$*" in
"names -timeout=2s -control=/run/other") echo other ;;
"names -timeout=2s") printf '%s\n' default/web default/db '$(touch pwned)' '\x60touch pwned\x60' '*' ;;
"names web -timeout=2s") printf '%s\n' 10.1.2.3:8080 10.1.2.3:9090 '[2001:db8::1]:80' ;;
"names -endpoints -timeout=2s") printf '%s\n' 10.1.2.3:8080 10.9.9.9:1 ;;
*) echo "unexpected-$*" | tr ' ' '-' ;;
esac
`

// TestTheShellsCompleteServicesAndEndpoints: what the node says is compared with what is typed, and never expanded.
func TestTheShellsCompleteServicesAndEndpoints(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "kube-proxy")
	if err := os.WriteFile(program, []byte(strings.ReplaceAll(aNode, `\x60`, "`")), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ words, bash, fish string }{
		{"drain .", "$(touch pwned) * `touch pwned` default/db default/web", ""},
		{"drain default/w", "default/web", "default/web"},
		{"drain -force default/w", "default/web", "default/web"},
		{"drain -control=/run/other .", "other", "other"},
		{"drain web 10.1.2.3:8", "8080", "10.1.2.3:8080"},
		{"drain web [2001:db8::1", "1]:80", "[2001:db8::1]:80"},
		{"drain web 10.1.2.3:8080 .", "", ""},
		{"drain -service default/d", "default/db", "default/db"},
		{"drain -service = default/d", "default/db", "-service=default/db"},
		{"drain -endpoint = 10.9", "10.9.9.9:1", "-endpoint=10.9.9.9:1"},
	} {
		words := strings.Fields(tt.words)
		for i := range words {
			if words[i] == "." {
				words[i] = ""
			}
		}
		got := completeLines(t, append([]string{program}, words...)...)
		slices.Sort(got)
		if strings.Join(got, " ") != tt.bash {
			t.Errorf("bash, %s: got %q, want %s", tt.words, got, tt.bash)
		}
		if fish, err := exec.LookPath("fish"); err == nil && tt.fish != "" {
			script := filepath.Join(dir, "completion.fish")
			if err := os.WriteFile(script, []byte(helped(t, "completion", "fish")), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(fish, "--no-config", "-c", `set -gx PATH $argv[1] $PATH; source $argv[2]; complete -C $argv[3]`, dir, script, strings.ReplaceAll(strings.Join(append([]string{"kube-proxy"}, words...), " "), " = ", "="))
			out, err := cmd.CombinedOutput()
			if first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\t"); err != nil || first != tt.fish {
				t.Errorf("fish, %s: got %q, %v; want %s", tt.words, out, err, tt.fish)
			}
		}
	}
	if _, err := os.Stat("pwned"); err == nil {
		t.Error("a name was carried out")
	}
}
