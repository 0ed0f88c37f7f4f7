package process

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

// insideEnv is set in a process that has a network of its own.
const insideEnv = "OWN_NETWORK"

// AgainInOwnNetwork runs this program again in a network namespace of its own, where that is allowed, and gives
// its exit status. There the loopback is ours alone: no stranger has our ports, packets that are lost
// are lost by nobody else, and no firewall looks at each of them or keeps a table of connections, which a
// thousand a second would fill (conntrack remembers each for two minutes). But nothing can be fetched
// there, so prepare is called first. Elsewhere, or inside, done is false.
func AgainInOwnNetwork(args []string, stdout, stderr io.Writer, prepare func() error) (status int, done bool, err error) {
	if os.Getenv(insideEnv) != "" {
		if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
			return 0, false, fmt.Errorf("bring up the loopback: %w: %s", err, out)
		}
		return 0, false, nil
	}
	if os.Getuid() != 0 {
		return 0, false, nil
	}
	if err := prepare(); err != nil {
		return 0, false, err
	}
	self, err := os.Executable()
	if err != nil {
		return 0, false, err
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	if err := StartTied(cmd); err != nil {
		return 0, false, nil // not allowed here
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			_ = cmd.Process.Signal(s) // it may just have ended
		case err := <-ended:
			if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.ExitCode() >= 0 {
				return exit.ExitCode(), true, nil
			}
			return 0, true, err
		}
	}
}
