package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"syscall"
)

// insideEnv is set in a process that has a network of its own.
const insideEnv = "CHAOS_INSIDE"

// isolate runs this program again in a network namespace of its own, where that is allowed, and gives
// its exit status. There the loopback is ours alone: no stranger has our ports, packets that are lost
// are lost by nobody else, and no firewall keeps a table of connections, which a thousand a second
// would fill (conntrack remembers each for two minutes). Elsewhere, or inside, done is false.
func isolate(args []string, stdout, stderr io.Writer) (status int, done bool) {
	if os.Getenv(insideEnv) != "" || os.Getuid() != 0 {
		return 0, false
	}
	// What is built is built out here, where modules can be fetched.
	for _, binary := range []func() (string, error){etcdBinary, etcdutlBinary} {
		if _, err := binary(); err != nil {
			fmt.Fprintf(stderr, "chaos: %v\n", err)
			return 1, true
		}
	}
	runtime.LockOSThread() // the kernel's parent is a thread, and this one must not end before the child: see prctl(2)
	defer runtime.UnlockOSThread()
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintf(stderr, "chaos: %v\n", err)
		return 1, true
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, false // not allowed here
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may just have ended
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
				return exit.ExitCode(), true
			}
			if err != nil {
				fmt.Fprintf(stderr, "chaos: %v\n", err)
				return 1, true
			}
			return 0, true
		}
	}
}

// settleIn makes the new network usable.
func settleIn() error {
	if os.Getenv(insideEnv) == "" {
		return nil
	}
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		return fmt.Errorf("bring up the loopback: %w: %s", err, out)
	}
	return nil
}
