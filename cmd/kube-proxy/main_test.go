package main

import (
	"errors"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"kubeproxy/cmd/internal/programtest"
)

func TestMain(m *testing.M) {
	glogToStderr() // or the first of several tests at a time that makes a command line would, while another one visits the flags
	programtest.Main(m, "kube-proxy", main)
}

// start runs kube-proxy, with these variables added to the environment. It answers operators only if args
// say where: several of it run at a time.
func start(t testing.TB, env []string, args ...string) *programtest.Program {
	t.Helper()
	if len(args) == 0 || args[0] != "check" {
		args = append([]string{"-healthz_bind_address=", "-metrics_bind_address="}, args...)
	}
	return programtest.Start(t, env, "kube-proxy", args...)
}

// TestScripts runs what testdata/script tells. There "exits 2 kube-proxy -bogus" runs a program and
// wants this exit status of it.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		Deadline:            time.Now().Add(10 * programtest.Patience), // for a program that runs on; all scripts have it together
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": func(ts *testscript.TestScript, _ bool, args []string) {
				want, err := strconv.Atoi(args[0])
				ts.Check(err)
				got := 0
				if err := ts.Exec(args[1], args[2:]...); err != nil {
					exit, ok := errors.AsType[*exec.ExitError](err)
					if !ok {
						ts.Fatalf("%v", err)
					}
					got = exit.ExitCode()
				}
				if got != want {
					ts.Fatalf("exit status %d, want %d", got, want)
				}
			},
		},
	})
}
