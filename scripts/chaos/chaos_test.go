package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be the node of its own experiments, as the program is of its own.
func TestMain(m *testing.M) {
	for _, arg := range os.Args[1:] {
		if arg == "node" {
			os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr))
		}
	}
	os.Exit(m.Run())
}

// TestWhatIsServedStaysTrueWhateverHappensToEtcd is the small run: each fault that is quick and needs no
// privileges, once, under load. `make chaos` is the large one.
func TestWhatIsServedStaysTrueWhateverHappensToEtcd(t *testing.T) {
	s, f, err := parse([]string{"-smoke", "-connections=100"}, new(bytes.Buffer))
	if err != nil || f.NArg() > 0 {
		t.Fatal(err)
	}
	s.dir = t.TempDir()
	s.factor = 5 // tests share the machine
	var out bytes.Buffer
	began := time.Now()
	err = runChaos(t.Context(), s, &out)
	t.Logf("%v\n%s", time.Since(began).Round(time.Second), out.String())
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(out.String(), "not injected") {
		t.Error("a fault of the small run needs something that this machine lacks")
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-members=2"}, {"-rate=0"}, {"-only=nonsense"}, {"sing"}, {"-nonsense"}} {
		var stderr bytes.Buffer
		if status := realMain(args, new(bytes.Buffer), &stderr); status != 2 || stderr.Len() == 0 {
			t.Errorf("%v: status %d, %q; want 2 and a reason", args, status, stderr.String())
		}
	}
}
