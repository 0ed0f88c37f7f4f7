//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// rootPackages are what a root has beside Debian's smallest set.
var rootPackages = []string{"systemd", "systemd-sysv", "dbus", "logrotate"}

// makeRoot has debootstrap make a Debian root at path, unless there is one with these packages.
func makeRoot(path, suite string) error {
	list := strings.Join(rootPackages, ",")
	stamp := filepath.Join(path, "etc", "debiancheck")
	if made, err := os.ReadFile(stamp); err == nil && string(made) == list {
		return nil
	}
	fmt.Printf("debootstrap makes %s, for this run and later ones\n", path)
	building := path + ".new"
	if err := os.RemoveAll(building); err != nil {
		return err
	}
	if err := os.MkdirAll(building, 0o755); err != nil {
		return err
	}
	cmd := exec.Command("debootstrap", "--variant=minbase", "--include="+list, suite, building)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("debootstrap: %w:\n%s", err, out[max(0, len(out)-2000):])
	}
	if err := os.WriteFile(filepath.Join(building, "etc", "debiancheck"), []byte(list), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	return os.Rename(building, path)
}
