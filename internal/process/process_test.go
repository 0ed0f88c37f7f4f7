//go:build unix

package process

import (
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestAProcessIsReadyWhenItSaysSo(t *testing.T) {
	p, err := Start(t.TempDir(), "shell", "sh", "-c", "echo up; exec sleep 60")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.Await(time.Minute, func() bool { return p.Said("up\n") }); err != nil {
		t.Error(err)
	}
	p.Pause()
	p.Stop() // a frozen process hears that, too
	p.Stop()
	if err := p.Running(); err == nil {
		t.Error("it runs after Stop")
	}
}

func TestAProcessThatEndsEarlyIsQuoted(t *testing.T) {
	p, err := Start(t.TempDir(), "shell", "sh", "-c", "echo cannot >&2; exit 3")
	if err != nil {
		t.Fatal(err)
	}
	err = p.Await(time.Minute, func() bool { return false })
	if err == nil || !strings.Contains(err.Error(), "exit status 3") || !strings.Contains(err.Error(), "cannot") {
		t.Errorf("%v; want its exit status and its last words", err)
	}
}

func TestWhatAProcessHasStartedEndsWithIt(t *testing.T) {
	g := &Group{Dir: t.TempDir()}
	p, err := g.Start("shell", "sh", "-c", "sleep 60 & echo up; wait")
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Await(time.Minute, func() bool { return p.Said("up\n") }); err != nil {
		t.Fatal(err)
	}
	pid := p.PID()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); !errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the group still has members")
		}
	}
}

func TestNoProcessIsNotRunning(t *testing.T) {
	var p *Process
	p.Stop()
	p.Kill()
	if p.Running() == nil {
		t.Error("a process that was not started runs")
	}
}
