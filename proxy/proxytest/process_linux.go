package proxytest

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// insideEnv tells a process which test it was started for.
const insideEnv = "PROXYTEST_INSIDE"

// spoken begins the lines that a started process says to the test that started it; the others are
// the testing package's.
const spoken = "» "

// Inside reports whether this process was started for test t, by [Start] or [InOwnNetwork].
func Inside(t *testing.T) bool { return os.Getenv(insideEnv) == t.Name() }

// InOwnNetwork runs the test that calls it in a process and a network of its own, in which it is
// root and no other user is. In the first process it waits for the other, logs what that reports,
// and returns false: the caller returns. In the other it returns true.
func InOwnNetwork(t *testing.T) bool {
	t.Helper()
	reports, inside := ReportsFromOwnNetwork(t)
	for _, report := range reports {
		t.Log(report)
	}
	return inside
}

// ReportsFromOwnNetwork is [InOwnNetwork] for a caller that reads the reports itself. It may call
// again, which runs the test once more.
func ReportsFromOwnNetwork(t *testing.T) (reports []string, inside bool) {
	t.Helper()
	staysApart(t)
	if Inside(t) {
		fmt.Println(spoken + "inside")
		MustRun(t, "ip", "link", "set", "lo", "up")
		return nil, true
	}
	p := start(t, newNetwork())
	if hello := p.Hear(); hello != "inside" {
		t.Errorf("the test did not run in its own network: %q", hello)
	}
	for said := range p.heard {
		reports = append(reports, said)
	}
	p.Stop()
	return reports, false
}

// newNetwork has a process get a network of its own.
func newNetwork() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if os.Geteuid() != 0 { // a user namespace makes us root in it
		attr.Cloneflags |= syscall.CLONE_NEWUSER
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
		attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	return attr
}

// Outcome runs the test that calls it once more, as [InOwnNetwork], with variables, and returns what that reports, and all that it
// prints. Whether it passes makes no difference.
func Outcome(t *testing.T, variables ...string) (reports []string, output string) {
	t.Helper()
	p := start(t, newNetwork(), variables...)
	for said := range p.heard {
		reports = append(reports, said)
	}
	p.stop.Do(func() { _ = p.end() })
	return reports, p.output()
}

// Report has the test log a line in the first process, also when it passes in one of its own: figures, say.
func Report(format string, args ...any) { fmt.Printf(spoken+format+"\n", args...) }

// A Process is the test that started it, run once more, to the point where [Inside] is true. It
// ends when its standard input does.
type Process struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	heard chan string
	read  sync.WaitGroup
	stop  sync.Once

	mu  sync.Mutex // guards the fields below
	out bytes.Buffer
	log int // lines of standard error
}

// Start runs the test that calls it once more in a process of its own. Variables are set in its
// environment, in the form key=value.
func Start(t *testing.T, variables ...string) *Process {
	t.Helper()
	staysApart(t)
	return start(t, nil, variables...)
}

func start(t *testing.T, attr *syscall.SysProcAttr, variables ...string) *Process {
	t.Helper()
	p, err := launch(t.Name(), attr, []string{"-test.timeout=" + (8 * Patience).String()}, variables...)
	if err != nil {
		t.Fatal(err)
	}
	p.t = t
	t.Cleanup(p.Stop)
	return p
}

// launch starts a process that runs the test with a name, with more flags of go test.
func launch(name string, attr *syscall.SysProcAttr, args []string, variables ...string) (*Process, error) {
	var pattern []string
	for element := range strings.SplitSeq(name, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(element)+"$")
	}
	p := &Process{heard: make(chan string, 16)}
	p.cmd = exec.Command(os.Args[0], "-test.run="+strings.Join(pattern, "/"), "-test.count=1")
	p.cmd.Args = append(p.cmd.Args, args...)
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") {
			p.cmd.Args = append(p.cmd.Args, "-"+f.Name+"="+f.Value.String())
		}
	})
	p.cmd.Env = append(os.Environ(), insideEnv+"="+name, "GORACE=atexit_sleep_ms=0") // the race detector would wait a second
	p.cmd.Env = append(p.cmd.Env, variables...)
	p.cmd.SysProcAttr = attr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the test again in a process of its own (for one with its own network it takes root, or user namespaces): %w", err)
	}
	p.read.Go(func() {
		defer close(p.heard)
		p.listen(stdout, func(line string) {
			if said, ok := strings.CutPrefix(line, spoken); ok {
				p.heard <- said
			}
		})
	})
	p.read.Go(func() { p.listen(stderr, func(string) { p.log++ }) })
	return p, nil
}

func (p *Process) listen(from io.Reader, each func(line string)) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p.mu.Lock()
		fmt.Fprintln(&p.out, lines.Text())
		each(lines.Text())
		p.mu.Unlock()
	}
}

// Hear returns the next thing that the process says.
func (p *Process) Hear() string {
	p.t.Helper()
	return Receive(p.t, p.heard, "a word from the process of its own")
}

// Ask gives the process a command and returns what it answers.
func (p *Process) Ask(command string) string {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.stdin, command); err != nil {
		p.t.Fatalf("ask %q: %v", command, err)
	}
	return p.Hear()
}

// LogLines counts the lines that the process has logged so far.
func (p *Process) LogLines() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log
}

// Stop ends the process, and fails the test when it failed. It is safe twice.
func (p *Process) Stop() {
	p.t.Helper()
	p.stop.Do(func() {
		if err := p.end(); err != nil || p.t.Failed() {
			p.t.Errorf("the process of its own: %v\n%s", err, p.output())
		}
	})
}

// end closes the standard input of the process, and waits for it.
func (p *Process) end() error {
	p.stdin.Close()
	p.read.Wait()
	return p.cmd.Wait()
}

// output returns what the process has printed since the last call.
func (p *Process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.out.Reset()
	return p.out.String()
}

// Obey answers commands in a process that was started, until there are no more.
func Obey(t *testing.T, answer func(command string) string) {
	t.Helper()
	commands := bufio.NewScanner(os.Stdin)
	for commands.Scan() {
		fmt.Println(spoken + answer(commands.Text()))
	}
}

// MustRun runs a program, such as ip, in the process's own network.
func MustRun(t testing.TB, name string, args ...string) {
	t.Helper()
	if err := run(name, args...); err != nil {
		t.Fatal(err)
	}
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
