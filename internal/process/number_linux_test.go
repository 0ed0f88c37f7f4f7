package process

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
)

// TestAProcessThatHasEndedKillsNobodyWithItsNumber: of 32,768 numbers, as Linux gives out by default on small machines, each is soon another process's.
func TestAProcessThatHasEndedKillsNobodyWithItsNumber(t *testing.T) {
	const lastPID = "/proc/sys/kernel/ns_last_pid" // proc_sys_kernel(5): the next process has the number after it
	for range 100 {
		p, err := Start(t.TempDir(), "true", "true")
		if err != nil {
			t.Fatal(err)
		}
		<-p.exited
		if err := os.WriteFile(lastPID, []byte(strconv.Itoa(p.PID()-1)), 0); err != nil {
			t.Skipf("the number of a process cannot be chosen here: %v", err)
		}
		next := exec.Command("sleep", "60")
		next.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := next.Start(); err != nil {
			t.Fatal(err)
		}
		same := next.Process.Pid == p.PID()
		p.Kill()
		_ = next.Process.Signal(syscall.SIGTERM)
		if err := next.Wait(); same && fmt.Sprint(err) != "signal: terminated" {
			t.Errorf("another process with its number has ended by %v", err)
		}
		if same {
			return
		}
	}
	t.Skip("another process had each number first")
}
