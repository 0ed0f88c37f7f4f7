package process

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
)

// TestAHangUpOfTheTerminalReachesTheProgramInItsOwnNetwork: without it a closed terminal would kill that program by the death of its parent, and
// nothing would stop what it has started.
func TestAHangUpOfTheTerminalReachesTheProgramInItsOwnNetwork(t *testing.T) {
	const role = "HANGUP_ROLE"
	if os.Getenv(role) != "" {
		signals := make(chan os.Signal, 1)
		if os.Getenv(insideEnv) != "" {
			signal.Notify(signals, syscall.SIGHUP) // before this says that it is ready
		}
		status, done, err := AgainInOwnNetwork(os.Args[1:], os.Stdout, os.Stderr, func() error { return nil })
		if done {
			os.Exit(status)
		}
		if err != nil || os.Getenv(insideEnv) == "" {
			fmt.Println("no network:", err)
			os.Exit(0)
		}
		fmt.Println("ready")
		<-signals
		os.Exit(7)
	}
	if os.Getuid() != 0 {
		t.Skip("only root has a network of its own")
	}
	outside := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	outside.Env = append(os.Environ(), role+"=yes")
	out, err := outside.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := outside.Start(); err != nil {
		t.Fatal(err)
	}
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || said != "ready\n" {
		_ = outside.Wait()
		if err == nil {
			t.Skip(said)
		}
		t.Fatal(err)
	}
	if err := outside.Process.Signal(syscall.SIGHUP); err != nil {
		t.Error(err)
	}
	_ = outside.Wait()
	if got := outside.ProcessState; got.ExitCode() != 7 {
		t.Errorf("it ended with %v; want exit status 7, which is that of the program inside", got)
	}
}
