//go:build linux

package kernelpath

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"kubeproxy/internal/process"
)

// A machine is a process that answers each line with a line.
type machine struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startMachine starts a process that plays a role, in a network of its own if it is to have one.
func startMachine(program, role string, network bool) (*machine, error) {
	cmd := exec.Command(program, role, "x")
	cmd.Stderr = os.Stderr
	if network {
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.StartTied(cmd); err != nil {
		return nil, err
	}
	return &machine{cmd, in, bufio.NewReader(out)}, nil
}

// ask sends a line and returns the answer.
func (m *machine) ask(line string) (string, error) {
	if _, err := fmt.Fprintln(m.in, line); err != nil {
		return "", err
	}
	return m.out.ReadString('\n')
}

// end has the process end, and waits for it.
func (m *machine) end() {
	m.in.Close()
	_ = m.cmd.Wait() // it has nothing more to say
}

// wire joins the network of a machine to that of the node.
func (m *machine) wire(name, here, there string) error {
	pid := strconv.Itoa(m.cmd.Process.Pid)
	inside := func(args ...string) error { return run("nsenter", append([]string{"-t", pid, "-n", "ip"}, args...)...) }
	return errors.Join(
		run("ip", "link", "add", name, "type", "veth", "peer", "name", "eth", "netns", pid),
		run("ip", "addr", "add", here+"/24", "dev", name),
		run("ip", "link", "set", name, "up"),
		inside("addr", "add", there+"/24", "dev", "eth"),
		inside("link", "set", "lo", "up"),
		inside("link", "set", "eth", "up"),
		inside("route", "add", "default", "via", here),
	)
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %v: %w: %s", name, args, err, out)
	}
	return nil
}
