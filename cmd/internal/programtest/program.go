package programtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"

	"kubeproxy/internal/process"
)

// Patience is how long to wait for what would happen at once on a machine that has nothing else to do.
const Patience = 30 * time.Second

// Main is for TestMain. It runs main if the test binary is called by this name, and else the tests,
// which fail if they leave goroutines behind. Scripts, and shells that the tests start, find the
// program by its name.
func Main(m *testing.M, name string, main func()) {
	testscript.Main(leakChecked{m}, map[string]func(){name: main})
}

type leakChecked struct{ m *testing.M }

// Run implements [testscript.TestingM].
func (l leakChecked) Run() int {
	code := l.m.Run()
	if code != 0 {
		return code
	}
	for deadline := time.Now().Add(Patience); ; { // goleak itself waits for less than half a second
		err := goleak.Find(goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
		if err == nil {
			return 0
		}
		if time.Now().After(deadline) {
			os.Stderr.WriteString(err.Error() + "\n")
			return 1
		}
	}
}

// A Program is one run of the program.
type Program struct {
	Stdout *Transcript
	Stderr *Transcript
	stdout io.Closer // our end of it
	cmd    *exec.Cmd
	ended  chan struct{} // closed once cmd is gone and all that it said is in the transcripts

	awaited bool // its end, in vain
}

// Start runs the program by its name, with these variables added to the environment. It is killed at
// the end of the test, should it still run.
func Start(t testing.TB, env []string, name string, args ...string) *Program {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Run(t, &exec.Cmd{Path: path, Args: append([]string{name}, args...), Env: append(os.Environ(), env...)})
}

// Run is Start for any command that has not been started, with its path and, unless it is to be ours, its
// environment.
func Run(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	return run(t, cmd, (*exec.Cmd).Start)
}

// RunTied is Run of a program that the kernel kills when the test's process dies. It inherits nothing of the thread that calls it.
func RunTied(t testing.TB, cmd *exec.Cmd) *Program {
	t.Helper()
	return run(t, cmd, process.StartTied)
}

func run(t testing.TB, cmd *exec.Cmd, begin func(*exec.Cmd) error) *Program {
	t.Helper()
	p := &Program{Stdout: newTranscript(), Stderr: newTranscript(), cmd: cmd, ended: make(chan struct{})}
	if p.cmd.Env == nil {
		p.cmd.Env = os.Environ()
	}
	p.cmd.Env = append(p.cmd.Env, "GORACE=atexit_sleep_ms=0") // or the race detector sleeps a second at each exit
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdout = stdout
	if err := begin(p.cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		var readers sync.WaitGroup
		readers.Go(func() { p.Stdout.read(stdout) })
		readers.Go(func() { p.Stderr.read(stderr) })
		readers.Wait()
		_ = p.cmd.Wait() // Exit tells how it ended
	}()
	t.Cleanup(func() {
		if p.Stdout.awaited || p.Stderr.awaited || p.awaited {
			p.sayWhereItStands()
		}
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
		if strings.Contains(p.Stderr.String(), "WARNING: DATA RACE") {
			t.Errorf("%q has a data race", p.cmd.Args)
		}
		if t.Failed() {
			t.Logf("%q said:\n%s%s", cmd.Args, p.Stdout, p.Stderr)
		}
	})
	return p
}

// sayWhereItStands has a program that still runs print its goroutines, for the log of a test that waited for it in vain.
func (p *Program) sayWhereItStands() {
	if p.cmd.Process.Signal(syscall.SIGQUIT) != nil {
		return // it has ended
	}
	select {
	case <-p.ended:
	case <-time.After(5 * time.Second):
	}
}

// Pid is the process's number.
func (p *Program) Pid() int { return p.cmd.Process.Pid }

// Signal sends a signal to the program.
func (p *Program) Signal(t testing.TB, sig syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		t.Fatalf("%v: %v", sig, err)
	}
}

// CloseStdout stops reading what the program says on standard output.
func (p *Program) CloseStdout(t testing.TB) {
	t.Helper()
	if err := p.stdout.Close(); err != nil {
		t.Fatal(err)
	}
}

// Exit waits for the end of the program, and tells how it ended.
func (p *Program) Exit(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-p.ended:
		return p.cmd.ProcessState
	case <-time.After(Patience):
		p.awaited = true
		t.Fatal("the program still runs")
		return nil
	}
}

// A Transcript is what a program has said so far.
type Transcript struct {
	mu   sync.Mutex // guards the fields below
	text strings.Builder
	over bool
	more chan struct{} // closed, and replaced, at each change

	awaited bool // something, in vain; the test's goroutine's own
}

func newTranscript() *Transcript { return &Transcript{more: make(chan struct{})} }

func (s *Transcript) read(r io.Reader) {
	for lines := bufio.NewReader(r); ; {
		line, err := lines.ReadString('\n')
		s.mu.Lock()
		s.text.WriteString(line)
		s.over = err != nil
		close(s.more)
		s.more = make(chan struct{})
		s.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// String gives all of it.
func (s *Transcript) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Wait waits until the program has said this.
func (s *Transcript) Wait(t testing.TB, this string) {
	t.Helper()
	late := time.After(Patience)
	for {
		s.mu.Lock()
		said, over, more := strings.Contains(s.text.String(), this), s.over, s.more
		s.mu.Unlock()
		switch {
		case said:
			return
		case over:
			t.Fatalf("the program never said %q", this)
		}
		select {
		case <-more:
		case <-late:
			s.awaited = true
			t.Fatalf("the program has not said %q", this)
		}
	}
}
