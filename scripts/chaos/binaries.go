package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// The programs that are put to the test, and what repairs them, are built from the versions that go.mod
// pins. The Go build cache keeps them.
var (
	etcdBinary    = sync.OnceValues(func() (string, error) { return build("go.etcd.io/etcd/server/v3") })
	etcdutlBinary = sync.OnceValues(func() (string, error) { return build("go.etcd.io/etcd/etcdutl/v3") })
)

// build builds one of go.mod's tools and gives its path. CGO is off, as in plain builds, so that etcd
// is compiled once.
func build(tool string) (string, error) {
	cmd := exec.Command("go", "tool", "-n", tool)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build %s: %w: %s", tool, err, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

// buildTools builds what a run may need.
func buildTools() error {
	_, err := etcdBinary()
	return errors.Join(err, haveEtcdutl())
}

func haveEtcdutl() error {
	_, err := etcdutlBinary()
	return err
}
