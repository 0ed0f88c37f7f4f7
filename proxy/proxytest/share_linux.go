package proxytest

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

// share has processes run the tests of a suite, each one at a time, and reports whether it did. Otherwise the caller runs them.
//
// Each process runs the test of the suite once more. There share runs the tests whose names it reads from standard input.
func share(t *testing.T, names []string, tests map[string]func(*testing.T)) bool {
	t.Helper()
	if Inside(t) {
		Obey(t, func(name string) string {
			skipped := false
			passed := t.Run(name, func(t *testing.T) {
				defer func() { skipped = t.Skipped() }()
				tests[name](t)
			})
			return fmt.Sprint(passed, skipped)
		})
		return true
	}
	some := strings.Contains(testFlag("run")+testFlag("skip"), "/")
	if some || testFlag("parallel") == "1" || testing.CoverMode() != "" {
		return false
	}
	idle := make(chan *Process, len(names))
	t.Cleanup(func() {
		t.Helper()
		close(idle)
		for p := range idle {
			if err := p.end(); err != nil && !t.Failed() {
				t.Errorf("a process that has run tests, all of which passed: %v\n%s", err, p.output())
			}
		}
	})
	for _, name := range names {
		t.Run(name, func(sub *testing.T) {
			sub.Parallel()
			var p *Process
			select {
			case p = <-idle:
			default:
				var err error
				if p, err = launch(t.Name(), nil, []string{"-test.v", limit(t)}); err != nil {
					sub.Fatal(err)
				}
			}
			runIn(sub, p, name, idle)
		})
	}
	return true
}

// runIn runs one test of a suite in a process, which is idle then unless it has ended.
func runIn(t *testing.T, p *Process, name string, idle chan<- *Process) {
	t.Helper()
	fmt.Fprintln(p.stdin, name) // fails if the process has ended, which the next line finds out
	result, alive := <-p.heard
	if !alive {
		t.Errorf("the process of the test has ended: %v\n%s", p.end(), p.output())
		return
	}
	output := p.output()
	idle <- p
	var passed, skipped bool
	if _, err := fmt.Sscan(result, &passed, &skipped); err != nil {
		t.Errorf("the process of the test says %q: %v", result, err)
	}
	switch {
	case !passed:
		t.Error(output)
	case skipped:
		t.Skip(output)
	case testing.Verbose():
		t.Log(output)
	}
}

// testFlag is the value of a flag of go test.
func testFlag(name string) string { return flag.Lookup("test." + name).Value.String() }

// limit has the processes of a suite end a little before this one has to, so that they say what they wait for.
func limit(t *testing.T) string {
	left := time.Duration(0) // no limit
	if deadline, ok := t.Deadline(); ok {
		left = max(time.Until(deadline)-2*time.Second, time.Second)
	}
	return "-test.timeout=" + left.String()
}
