//go:build linux

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/internal/process"
	"kubeproxy/proxy/epoll"
)

// TestEachConnectionEndsAsItWasEndedAndEachDatagramIsAccountedFor is the short run: some hundred connections and some thousand datagrams
// with each engine, and with processes that take over from each other. `make torture` is the long one.
func TestEachConnectionEndsAsItWasEndedAndEachDatagramIsAccountedFor(t *testing.T) {
	binary, err := process.KubeProxyBinary()
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"-engine=portable"}, {"-engine=epoll"}, {"-engine=ring"}, {"-engine=epoll", "-takeovers=epoll,ring"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if strings.Contains(strings.Join(args, " "), "ring") {
				if err := epoll.TryRing(); err != nil {
					t.Skipf("no io_uring here: %v", err)
				}
			}
			s, err := parseFlags(append(args, "-binary="+binary, "-duration=3s", "-connections=100", "-dir="+t.TempDir()), new(bytes.Buffer))
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			err = s.run(t.Context(), &out)
			t.Log(out.String())
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestBadFlagsAreRefused(t *testing.T) {
	for _, args := range [][]string{{"-engine=steam"}, {"-takeovers=ring,steam"}, {"-connections=0"}, {"-most=0"}, {"sing"}, {"-nonsense"}} {
		var stderr bytes.Buffer
		if status := realMain(args, new(bytes.Buffer), &stderr); status != 2 || stderr.Len() == 0 {
			t.Errorf("%v: status %d, %q; want 2 and a reason", args, status, stderr.String())
		}
	}
}

func TestTheCommandThatIsPrintedRepeatsTheScript(t *testing.T) {
	s, err := parseFlags([]string{"-engine=epoll", "-takeovers=ring,epoll", "-stop=false"}, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	again, err := parseFlags(strings.Fields(s.again(7))[1:], new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	s.only = 7
	if got, want := again.again(7), s.again(7); got != want || again.seed != s.seed || again.only != 7 {
		t.Errorf("%q repeats %q", got, want)
	}
}

func TestAChangedByteOfAStreamIsFound(t *testing.T) {
	const s stream = 77
	got := bytes.Clone(s.at(1000, 5000))
	if at := s.differs(got, 1000); at != -1 {
		t.Fatalf("the stream differs from itself at %d", at)
	}
	if at := s.differs(got[64:], 1000); at < 0 {
		t.Error("bytes at the wrong offset are not found")
	}
	if at := stream(78).differs(got, 1000); at < 0 {
		t.Error("bytes of another stream are not found")
	}
	got[321]++
	if at := s.differs(got, 1000); at != 1321 {
		t.Errorf("the byte at offset 1321 was changed; found %d", at)
	}
}

func TestTheLogsOfAKubeProxyThatCrashedStay(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	binary := filepath.Join(t.TempDir(), "kube-proxy")
	if err := os.WriteFile(binary, []byte("#!/bin/sh\necho 'panic: it crashed' >&2\nexit 2\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	s, err := parseFlags([]string{"-binary=" + binary}, new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := s.run(t.Context(), &out); err == nil || !strings.Contains(err.Error(), "panic: it crashed") {
		t.Errorf("error %v; want one with the last words", err)
	}
	_, dir, said := strings.Cut(out.String(), "\nrecords and logs: ")
	log, err := os.ReadFile(filepath.Join(strings.TrimSpace(dir), "kube-proxy-1.log"))
	if !said || err != nil || !bytes.Contains(log, []byte("panic: it crashed")) {
		t.Errorf("the log is %q, %v", log, err)
	}
	if !strings.Contains(out.String(), "\nwrong ") {
		t.Error("there are no results")
	}
	if t.Failed() {
		t.Log(out.String())
	}
}
