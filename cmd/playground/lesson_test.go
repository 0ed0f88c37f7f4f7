package main

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// start starts the playground and gives the commands that it prints.
func start(t *testing.T, env ...string) (p *programtest.Program, commands []string) {
	t.Helper()
	p = programtest.Start(t, env, "playground", "-v=0")
	p.Stdout.Wait(t, "Ctrl-C stops everything")
	for line := range strings.Lines(p.Stdout.String()) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			commands = append(commands, strings.TrimSuffix(command, "\n"))
		}
	}
	return p, commands
}

// paste runs a command as a shell does that it is pasted into.
func paste(command string) (string, error) {
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	return string(out), err
}

// TestEachPrintedCommandWorksWhenPasted pastes all of them, in order, and reads the answers.
func TestEachPrintedCommandWorksWhenPasted(t *testing.T) {
	dir := t.TempDir() // for its temporary files
	p, commands := start(t, "TMPDIR="+dir)
	work(t, commands)
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestTakenPortsAreReplacedAndItSaysSo takes every port that the playground wants. Then it has
// others, says which, and its commands work all the same.
func TestTakenPortsAreReplacedAndItSaysSo(t *testing.T) {
	for _, addr := range []string{defaultEtcd, "127.0.0.1:8100", "127.0.0.1:8101", "127.0.0.1:8103"} {
		if l, err := net.Listen("tcp", addr); err == nil { // else another program has it, which is as good
			defer l.Close()
		}
	}
	if conn, err := net.ListenPacket("udp", "127.0.0.1:8102"); err == nil {
		defer conn.Close()
	}
	p, commands := start(t)
	for _, want := range []string{defaultEtcd + " is taken", "tcp port 8100 is taken", "tcp port 8101 is taken", "udp port 8102 is taken"} {
		if !strings.Contains(p.Stdout.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	work(t, commands)
	p.Signal(t, syscall.SIGINT)
	if code := p.Exit(t).ExitCode(); code != 0 {
		t.Errorf("exit status %d, want 0", code)
	}
}

// work pastes the commands and checks what comes out.
func work(t *testing.T, commands []string) {
	t.Helper()
	expectations := []struct {
		like  string // a regular expression
		check func(out string) error
	}{
		{`^curl -s http://`, inTurn(1, "web")},
		{`^playground call -n 6 http `, inTurn(6, "web")},
		{`^playground call -n 6 tcp `, inTurn(6, "echo")},
		{`^playground call -n 6 udp `, inTurn(6, "ping")},
		{`^playground get .*` + registry.Prefix + `$`, lists("web", "echo", "ping")},
		{`^playground put .*` + registry.EndpointsPrefix + "web ", says("put " + registry.EndpointsPrefix + "web at revision ")},
		{`^playground call -n 3 http `, inTurn(3, "web", "web-1")},
		{`^playground put .*` + registry.EndpointsPrefix + "more ", says("put " + registry.EndpointsPrefix + "more at revision ")},
		{`^playground put .*` + registry.SpecsPrefix + "more ", says("put " + registry.SpecsPrefix + "more at revision ")},
		{`^playground call -n 3 tcp `, inTurn(3, "echo")},
		{`^playground del .*` + registry.SpecsPrefix + "more$", says("deleted " + registry.SpecsPrefix + "more at revision ")},
		{`^echo .* >.*/records` + registry.EndpointsPrefix + "filed$", silent},
		{`^echo .* >.*/records` + registry.SpecsPrefix + "filed$", silent},
		{`^playground call -n 3 http `, inTurn(3, "web")},
		{`^rm .*/records` + registry.SpecsPrefix + "filed$", silent},
	}
	if _, err := exec.LookPath("curl"); err != nil {
		t.Log("no curl on this machine: its command must not be printed")
		expectations = expectations[1:]
	}
	if len(commands) != len(expectations) {
		t.Fatalf("%d commands, want %d:\n%s", len(commands), len(expectations), strings.Join(commands, "\n"))
	}
	for i, command := range commands {
		if want := expectations[i].like; !regexp.MustCompile(want).MatchString(command) {
			t.Fatalf("command %d is %s, want %s", i, command, want)
		}
		try := func() error {
			out, err := paste(command)
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return expectations[i].check(out)
		}
		// A change takes effect a moment after the put, and on a busy machine the loopback loses packets,
		// upon which the proxy tries the next endpoint: what is a call is tried until it answers as promised.
		err := try()
		if strings.Contains(command, " call ") || strings.HasPrefix(command, "curl ") {
			proxytest.Becomes(func() bool {
				if err != nil {
					err = try()
				}
				return err == nil
			})
		}
		if err != nil {
			t.Errorf("%s\n%v", command, err)
		}
	}
	for i, command := range commands[1:] {
		if call := commands[i]; strings.HasPrefix(command, "rm ") || strings.HasPrefix(command, "playground del ") {
			proxytest.Eventually(t, func() bool {
				out, err := paste(call)
				return err != nil && strings.Contains(out, "connection refused")
			}, "%s is refused after %s", call, command)
		}
	}
}

// inTurn wants n answers, each by the next backend of a service: of three, unless others are given.
func inTurn(n int, service string, backends ...string) func(string) error {
	if backends == nil {
		backends = []string{service + "-1", service + "-2", service + "-3"}
	}
	return func(out string) error {
		var names []string
		for line := range strings.Lines(out) {
			name, _, _ := strings.Cut(line, " ")
			names = append(names, name)
		}
		for first := range backends {
			var want []string
			for i := range n {
				want = append(want, backends[(first+i)%len(backends)])
			}
			if slices.Equal(names, want) {
				return nil
			}
		}
		return fmt.Errorf("want %d answers of %s in turn, got:\n%s", n, backends, out)
	}
}

// lists wants both records of each service.
func lists(services ...string) func(string) error {
	return func(out string) error {
		for _, s := range services {
			for _, key := range []string{registry.SpecsPrefix + s, registry.EndpointsPrefix + s} {
				if !strings.Contains(out, key+"\n    {\"kind\":") {
					return fmt.Errorf("%s is not in:\n%s", key, out)
				}
			}
		}
		return nil
	}
}

func says(what string) func(string) error {
	return func(out string) error {
		if !strings.HasPrefix(out, what) {
			return fmt.Errorf("want %q, got %q", what, out)
		}
		return nil
	}
}

func silent(out string) error {
	if out != "" {
		return fmt.Errorf("want nothing, got %q", out)
	}
	return nil
}

// TestOtherEtcdsAreLeftAlone: what put and del find at the usual port may be in use.
func TestOtherEtcdsAreLeftAlone(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	if _, err := client.Put(t.Context(), "/mine", "precious"); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"put -etcd=" + etcd.Addr() + " /mine worthless", "del -etcd=" + etcd.Addr() + " /mine"} {
		out, err := paste("playground " + command)
		if err == nil || !strings.Contains(out, "no playground's etcd") {
			t.Errorf("%s: %v, %s", command, err, out)
		}
	}
	if out, err := paste("playground get -etcd=" + etcd.Addr() + " /mine"); err != nil || out != "precious\n" {
		t.Errorf("get: %q, %v; want what was there", out, err)
	}
}

func TestCommandLines(t *testing.T) {
	for _, tt := range []struct {
		args string
		exit int
		says string
	}{
		{"-h", 0, "Usage:\n  playground [-v=N]"},
		{"call -h", 0, "Usage:\n"},
		{"dance", 2, "unknown command: dance\nUsage:\n"},
		{"call tcp", 2, "call needs 2 arguments, not 1\nUsage:\n"},
		{"put /key", 2, "put needs 2 arguments, not 1\nUsage:\n"},
		{"call smoke 127.0.0.1:1", 2, "none of http, tcp and udp\nUsage:\n"},
		{"-bogus", 2, "flag provided but not defined: -bogus\nUsage:\n"},
		{"call tcp 127.0.0.1:1", 1, "call tcp 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused\n"},
		{"call udp 127.0.0.1:1", 1, "connection refused\n"},
		{"get -etcd=127.0.0.1:1 /key", 1, "connection refused (does the playground run?)\n"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			p := programtest.Start(t, nil, "playground", strings.Fields(tt.args)...)
			if code := p.Exit(t).ExitCode(); code != tt.exit {
				t.Errorf("exit status %d, want %d", code, tt.exit)
			}
			if got := p.Stderr.String(); !strings.Contains(got, tt.says) {
				t.Errorf("it says %q, want %q", got, tt.says)
			}
		})
	}
}

// TestCommandsAreNamedAsThePlaygroundWasCalled: they are no use otherwise.
func TestCommandsAreNamedAsThePlaygroundWasCalled(t *testing.T) {
	for _, tt := range []struct{ called, want string }{
		{"bin/playground", "bin/playground"},
		{"./my playground", "'./my playground'"},
		{"playground", "playground"},
	} {
		if got := self(tt.called); got != tt.want {
			t.Errorf("called %s: %s, want %s", tt.called, got, tt.want)
		}
	}
	for dir, want := range map[string]string{"../..": "go run ./cmd/playground", ".": "go run kubeproxy/cmd/playground"} {
		run := exec.Command("go", "run", "kubeproxy/cmd/playground", "-h")
		run.Dir = dir
		run.Env = append(os.Environ(), "CGO_ENABLED=0")
		out, err := run.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), "Usage:\n  "+want+" [-v=N]\n") {
			t.Errorf("by go run in %s: %v, %s; want %s", dir, err, out, want)
		}
	}
}
