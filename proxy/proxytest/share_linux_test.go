package proxytest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// sampleEnv has TestSample run its suite.
const sampleEnv = "PROXYTEST_SAMPLE"

type sample struct{}

func (sample) TestPasses(t *testing.T) { t.Log("said by one that passes") }
func (sample) TestSkips(t *testing.T)  { t.Skip("said by one that skips") }
func (sample) TestFails(t *testing.T)  { t.Fatal("said by one that fails") }
func (sample) TestPanics(t *testing.T) { panic("said by one that panics") }
func (sample) TestStops(t *testing.T)  { os.Exit(0) }
func (sample) TestCases(t *testing.T) {
	t.Run("case", func(t *testing.T) { t.Error("said by a case") })
}
func (sample) TestToo(t *testing.T) {}

// TestSample is run by TestTheOutcomeOfEachTestIsThatOfTheProcessWhichRanIt.
func TestSample(t *testing.T) {
	if os.Getenv(sampleEnv) == "" {
		t.Skip("another test runs it")
	}
	RunMethods(t, sample{})
}

func TestTheOutcomeOfEachTestIsThatOfTheProcessWhichRanIt(t *testing.T) {
	for _, parallel := range []string{"2", "8"} {
		cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^TestSample$", "-test.parallel="+parallel)
		cmd.Env = append(os.Environ(), sampleEnv+"=1")
		text, err := cmd.CombinedOutput()
		if err == nil {
			t.Error("the suite has passed")
		}
		for _, want := range []string{
			"--- PASS: TestSample/TestPasses ", "said by one that passes",
			"--- SKIP: TestSample/TestSkips ", "said by one that skips",
			"--- FAIL: TestSample/TestFails ", "said by one that fails",
			"--- FAIL: TestSample/TestPanics ", "said by one that panics",
			"--- FAIL: TestSample/TestStops ",
			"--- FAIL: TestSample/TestCases ", "said by a case",
			"--- PASS: TestSample/TestToo ",
		} {
			if !strings.Contains(string(text), want) {
				t.Errorf("with %s processes, the output does not have %q", parallel, want)
			}
		}
		if t.Failed() {
			t.Logf("with %s processes:\n%s", parallel, text)
		}
	}
}
