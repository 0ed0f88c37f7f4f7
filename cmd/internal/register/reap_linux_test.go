package register

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const reaperEnv = "REGISTER_TEST_REAPER"

// A program in a container has process id 1, and is given the orphans of its checks. Nobody else waits for them, so they would take process ids for
// ever. Here a process of the test is given them.
func TestAnExecCheckLeavesNoZombieToProcessOne(t *testing.T) {
	if os.Getenv(reaperEnv) != "" {
		checkAsReaper(t)
		return
	}
	t.Parallel()
	helper := exec.Command(os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$")
	helper.Env = append(os.Environ(), reaperEnv+"=1")
	out, err := helper.CombinedOutput()
	if err != nil {
		t.Errorf("%v:\n%s", err, out)
	}
}

func checkAsReaper(t *testing.T) {
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		t.Skip(err)
	}
	command := exec.Command("/bin/sh", "-c", "exit 7") // stands for the one after --, and has ended before the checks
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"sleep 1000 & exit 0", "true & (sleep 1000 & sleep 1000 & wait) & exit 1", "exit 0"} {
		check, err := ParseCheck("exec="+line, &Instance{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			_ = check(t.Context()) // what it says is of no interest
			if left := children(t); len(left) != 1 || left[0] != fmt.Sprint(command.Process.Pid) {
				t.Errorf("after %q there are the children %v; want only %d", line, left, command.Process.Pid)
			}
		}
	}
	err := command.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 7 {
		t.Errorf("the command's end is %v; want exit status 7", err)
	}
}

// children lists the process ids of the children of this process, zombies among them.
func children(t *testing.T) (pids []string) {
	t.Helper()
	procs, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range procs {
		stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
		if err != nil {
			continue // no process, or it has just ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // state, parent, ...
		if fields[1] == fmt.Sprint(os.Getpid()) {
			pids = append(pids, p.Name())
		}
	}
	return pids
}
