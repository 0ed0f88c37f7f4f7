//go:build unix

package register

import (
	"bufio"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A check by a command leaves no process behind: neither one that hangs when the time is up, whatever signals it ignores, nor one that the shell has
// started and not waited for. Each process holds a pipe open that ends with the last of them.
func TestAnExecCheckLeavesNoProcessBehind(t *testing.T) {
	const child = `sh -c "trap '' TERM INT HUP; echo begun >&3; exec sleep 1000"`
	for _, c := range []struct {
		name, line   string
		ends, passes bool
	}{
		{"it hangs", child + " & wait", false, false},
		{"it hangs in the foreground", child, false, false},
		{"it passes", child + " & until test -e PIPE.go; do sleep 0.01; done; exit 0", true, true},
		{"it fails", child + " & until test -e PIPE.go; do sleep 0.01; done; exit 7", true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			check, err := ParseCheck("exec="+strings.ReplaceAll("exec 3>PIPE; "+c.line, "PIPE", pipe), &Instance{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			result := make(chan error, 1)
			go func() { result <- check(ctx) }()
			in, err := os.Open(pipe)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			lines := bufio.NewReader(in)
			if text, err := lines.ReadString('\n'); text != "begun\n" {
				t.Fatalf("the child said %q, %v", text, err)
			}
			if c.ends { // its child has begun
				if err := os.WriteFile(pipe+".go", nil, 0o600); err != nil {
					t.Fatal(err)
				}
			} else {
				cancel()
			}
			if err := <-result; (err == nil) != c.passes {
				t.Errorf("the check says %v; want it to pass: %t", err, c.passes)
			}
			gone := make(chan error, 1)
			go func() {
				_, err := io.Copy(io.Discard, lines)
				gone <- err
			}()
			select {
			case err := <-gone:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(time.Minute):
				t.Error("a process of the check is still there")
			}
		})
	}
}
