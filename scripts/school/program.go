package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"kubeproxy/internal/process"
)

// A program is what is judged: one run of it.
type program struct {
	*process.Process
	output *os.File
}

// start starts the program. descriptors bounds those that it may have open; 0: as many as the school.
func (t *trial) start(descriptors int) {
	args := append(append([]string(nil), t.command...), t.records.Flags()...)
	args = append(args, "-bind_address="+t.bind)
	t.args = args
	t.do(strings.Join(args, " "), "start your program: %s", strings.Join(args, " "))
	if descriptors > 0 {
		args = append([]string{"sh", "-c", `ulimit -n ` + itoa(descriptors) + `; exec "$0" "$@"`}, args...)
	}
	output, err := os.CreateTemp("", "school-*.log")
	t.must(err)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = output, output
	cmd.Env = append(os.Environ(), "BIND_ADDRESS="+t.bind)
	for _, flag := range t.records.Flags() { // -registry_dir=DIR is REGISTRY_DIR=DIR
		name, value, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
		cmd.Env = append(cmd.Env, strings.ToUpper(name)+"="+value)
	}
	p, err := process.Run("your program", cmd)
	if err != nil {
		output.Close()
		os.Remove(output.Name())
		t.fail("your program to start", "%v", err)
	}
	p.Output = output.Name()
	t.program = &program{p, output}
}

// lastLines returns the end of what the program has written.
func (p *program) lastLines(n int) []string {
	text := strings.TrimSpace(p.LastWords())
	if text == "" {
		return nil
	}
	lines := strings.Split(text, "\n")
	return lines[max(0, len(lines)-n):]
}

// close ends the program and whatever it has started.
func (p *program) close() {
	p.Kill()
	p.output.Close()
	os.Remove(p.output.Name())
}

// used returns how long the threads of a process have run, and how long they have waited for a processor, as Linux counts it; elsewhere 0.
// A thread that has ended is not counted.
func used(pid int) (ran, waited time.Duration) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil {
		return 0, 0
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		var r, w int64
		if n, _ := fmt.Sscan(string(text), &r, &w); n == 2 {
			ran, waited = ran+time.Duration(r), waited+time.Duration(w)
		}
	}
	return ran, waited
}
