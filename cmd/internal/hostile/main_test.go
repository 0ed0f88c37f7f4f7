//go:build linux

package hostile

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/internal/process"
	"kubeproxy/proxy/proxytest"
)

// The environment carries what tests in their own network have to know, since their command line is made for them.
const (
	roleEnv   = "HOSTILE_ROLE"   // this process is no test but plays a part in one
	fullEnv   = "HOSTILE_FULL"   // not the short form
	binaryEnv = "HOSTILE_BINARY" // kube-proxy
	engineEnv = "HOSTILE_ENGINE" // its engine
	tableEnv  = "HOSTILE_TABLE"  // a directory for the rows of the table
)

var full = flag.Bool("full", os.Getenv(fullEnv) != "", "in full: more of everything, several rounds, and p99 is judged; some minutes")

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		time.AfterFunc(roleTimeout, func() { os.Exit(3) })
		if err := play(role, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	binary := flag.String("binary", "", "kube-proxy (default: built from this tree)")
	engine := flag.String("engine", "auto", "its engine: ring, epoll, portable or auto")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		for _, name := range []string{"full", "binary", "engine", "test.run", "test.v"} {
			f := flag.Lookup(name)
			fmt.Fprintf(flag.CommandLine.Output(), "  -%s\n\t%s\n", name, f.Usage)
		}
	}
	flag.Parse()
	if os.Getenv(tableEnv) != "" { // in its own network
		os.Exit(m.Run())
	}
	dir, err := os.MkdirTemp("", "hostile-")
	if err == nil && *binary == "" {
		*binary, err = process.KubeProxyBinary()
	}
	if err == nil {
		*binary, err = filepath.Abs(*binary)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Setenv(binaryEnv, *binary)
	os.Setenv(engineEnv, *engine)
	os.Setenv(tableEnv, dir)
	if *full {
		os.Setenv(fullEnv, "1")
	}
	code := m.Run()
	printTable(dir)
	os.RemoveAll(dir)
	os.Exit(code)
}

const usage = `Attacks kube-proxy with hostile clients and bad records, each load in a network of its own, and prints a table:
what was refused and why, the memory of the process, and the p99 of the round trips of another service beside the
load, as a ratio to the same load on a process that accepts all of it. "go doc ./cmd/internal/hostile" explains the rest.

`

// roleTimeout is when a process that plays a part ends by itself.
const roleTimeout = 10 * time.Minute

// cast starts a process that plays a part, and waits until it says that it is ready.
func cast(t *testing.T, role string, args ...any) *programtest.Program {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(executable)
	for _, arg := range args {
		cmd.Args = append(cmd.Args, fmt.Sprint(arg))
	}
	cmd.Env = append(os.Environ(), roleEnv+"="+role)
	p := programtest.RunTied(t, cmd)
	p.Stdout.Wait(t, "ready\n")
	return p
}

// dismiss ends a process that played a part, with all its connections.
func dismiss(t *testing.T, p *programtest.Program) {
	t.Helper()
	p.Signal(t, syscall.SIGKILL)
	p.Exit(t)
}

// number gives the short form of a test less to do.
func number(inFull, inShort int) int {
	if *full {
		return inFull
	}
	return inShort
}

// eventually waits for what has to become true.
var eventually = proxytest.Eventually
