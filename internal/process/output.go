package process

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Output runs a program to its end and returns what it wrote to its standard output. An error quotes what it wrote to standard error.
func Output(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	group(cmd)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := StartTied(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, &stderr)
	}
	return stdout.Bytes(), nil
}
