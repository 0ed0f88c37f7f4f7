package process

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// prints names the variable that has the test binary print ports instead of testing.
const prints = "FREEPORT_TEST_PRINTS"

func TestMain(m *testing.M) {
	if os.Getenv(prints) != "" {
		printPorts()
		return
	}
	os.Exit(m.Run())
}

// printPorts prints 100 ports and a line "done", and runs until standard input ends.
func printPorts() {
	for range 100 {
		port, err := FreePorts(12000, 16000, 1)
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(port)
	}
	fmt.Println("done")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func TestNoTwoProcessesFindTheSamePort(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	const processes = 8
	var outputs []io.Reader
	for range processes { // all of them run before the output of the first is read
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), prints+"=1")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { in.Close(); _ = cmd.Wait() })
		outputs = append(outputs, out)
	}
	seen := make(map[string]int)
	for i, out := range outputs {
		lines := bufio.NewScanner(out)
		for lines.Scan() && lines.Text() != "done" {
			if other, ok := seen[lines.Text()]; ok {
				t.Errorf("processes %d and %d found port %s", other, i, lines.Text())
			}
			seen[lines.Text()] = i
		}
		if lines.Text() != "done" {
			t.Fatalf("process %d ended early; its last line: %q", i, lines.Text())
		}
	}
	if want := processes * 100; len(seen) != want {
		t.Errorf("%d processes found %d ports; want %d", processes, len(seen), want)
	}
}

func TestTheClaimOfAnEndedProcessDoesNotCount(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	b := blockOf(12000)
	if held, err := b.claim(); err != nil || !held {
		t.Fatalf("claim without another: %v, %v", held, err)
	}
	claims, err := filepath.Glob(filepath.Join(os.TempDir(), "*", "*"))
	if err != nil || len(claims) != 1 {
		t.Fatalf("claims: %q, %v; want one", claims, err)
	}
	dir := filepath.Dir(claims[0])

	running := b.claimOf(dir, os.Getppid())
	if err := os.WriteFile(running, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if held, err := b.claim(); err != nil || held {
		t.Errorf("beside the claim of a process that runs: %v, %v; want false", held, err)
	}
	if err := os.Remove(running); err != nil {
		t.Fatal(err)
	}

	ended := exec.Command(os.Args[0], "-test.run=^$")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(b.claimOf(dir, ended.Process.Pid), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if held, err := b.claim(); err != nil || !held {
		t.Errorf("beside the claim of process %d, which has ended: %v, %v; want true", ended.Process.Pid, held, err)
	}
}
