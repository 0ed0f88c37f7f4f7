//go:build linux

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
)

// patience bounds each wait for a state. A loaded machine is slow.
const patience = time.Minute

// A machine is a container that systemd has booted from a Debian root. What it writes goes to a file system in memory.
type machine struct {
	nspawn  *process.Process
	name    string
	init    int      // its process 1, by the number that it has outside
	cgroups []string // directories
	verbose bool
}

// Its parts, from the outside in: a shell joins the control groups; unshare gives a PID namespace, whose end is the end of all processes in it; and
// systemd-nspawn, which needs a /proc and mounts of that namespace, boots the root.
const launcher = `for c in $CGROUPS; do echo $$ >"$c/cgroup.procs" || exit 1; done
exec unshare --mount --propagation=private --pid --fork --kill-child --mount-proc -- "$@"`

// newMachine returns one that has not been booted.
func newMachine(verbose bool) *machine {
	return &machine{name: fmt.Sprintf("kubeproxy-check-%d", os.Getpid()), verbose: verbose}
}

// boot boots a root, and waits until systemd has started everything. The log goes to a file in dir.
func (m *machine) boot(root, dir string) (err error) {
	defer try.Catch(&err)
	m.cgroups = try.Get(makeCgroups(m.name))
	m.nspawn = try.Get(process.Start(dir, "nspawn", append([]string{"env", "CGROUPS=" + strings.Join(m.cgroups, " "), "sh", "-c", launcher, "sh"},
		"systemd-nspawn", "--quiet", "--directory="+root, "--volatile=overlay", "--machine="+m.name, "--boot", "--register=no", "--keep-unit", "--console=pipe")...))
	try.Do(m.nspawn.Await(patience, func() bool {
		m.init = childOf(childOf(m.nspawn.PID()))
		if m.init == 0 {
			return false
		}
		state, _ := m.run("systemctl", "is-system-running") // it fails until the bus is there, and with any state but running
		return state == "running"
	}))
	return nil
}

// makeCgroups makes a control group in each hierarchy that systemd uses: cgroup2, or the two of a hybrid set-up. systemd-nspawn puts its own below.
func makeCgroups(name string) (made []string, err error) {
	for _, hierarchy := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(hierarchy, "cgroup.procs")); err != nil {
			continue
		}
		dir := filepath.Join(hierarchy, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return made, err
		}
		made = append(made, dir)
	}
	return made, nil
}

// childOf returns the only child of a process, or 0.
func childOf(pid int) int {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", pid)) // it may not be there yet
	child, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return child
}

// run runs a command in the machine, and returns its output without the last end of line. An error has it as well.
func (m *machine) run(args ...string) (string, error) {
	if m.verbose {
		fmt.Println("  #", strings.Join(args, " "))
	}
	cmd := exec.Command("nsenter", append([]string{"--target=" + strconv.Itoa(m.init), "--mount", "--uts", "--ipc", "--pid", "--cgroup", "--root", "--",
		"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "DEBIAN_FRONTEND=noninteractive"}, args...)...)
	out, err := cmd.CombinedOutput()
	text := strings.TrimSuffix(string(out), "\n")
	if err != nil {
		err = fmt.Errorf("%s: %w:\n%s", strings.Join(args, " "), err, text)
	}
	return text, err
}

// path is where a file of the machine is outside.
func (m *machine) path(name string) string { return fmt.Sprintf("/proc/%d/root%s", m.init, name) }

// install copies a file into the machine. It replaces one that is there, by rename.
func (m *machine) install(from, to string, mode fs.FileMode) error {
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.WriteFile(m.path(to+".new"), content, mode); err != nil {
		return err
	}
	return os.Rename(m.path(to+".new"), m.path(to))
}

// close ends the machine, and removes its control groups and the directory that systemd-nspawn leaves. It may be called again.
func (m *machine) close() error {
	m.nspawn.Kill()
	failed := os.RemoveAll(filepath.Join("/run/systemd/nspawn/propagate", m.name))
	for _, dir := range m.cgroups {
		var below []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error { // what cannot be read cannot be removed either
			if err == nil && d.IsDir() {
				below = append(below, path)
			}
			return nil
		})
		for _, path := range slices.Backward(below) {
			failed = errors.Join(failed, removeCgroup(path))
		}
	}
	return failed
}

// removeCgroup removes one. The kernel lets go of its processes soon after their end.
func removeCgroup(dir string) error {
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		err := os.Remove(dir)
		if err == nil || os.IsNotExist(err) || time.Now().After(deadline) {
			return err
		}
	}
}
