package process

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// Output runs a program to its end and returns what it wrote to its standard output. An error quotes what it wrote to standard error.
func Output(ctx context.Context, path string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, path, args...)
	TieToParent(cmd)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", path, strings.Join(args, " "), err, stderr.String())
	}
	return out, nil
}
