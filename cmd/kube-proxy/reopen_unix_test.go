//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"kubeproxy/cmd/internal/programtest"
)

// TestConnectionLogTellsOfEachClient, in the file that had the name when it ended; the last lines are there
// when the program is not any more.
func TestConnectionLogTellsOfEachClient(t *testing.T) {
	s := newSite(t)
	path := filepath.Join(t.TempDir(), "log")
	p := s.start(t, "-connection_log="+path)
	p.Stderr.Wait(t, "listening for chat")
	s.talk(t).Conn.Close()
	line := logged(t, path, 1)[0]
	if line["service"] != "default/chat" || line["port"] != float64(s.port) || line["attempts"] != 1.0 || line["sent"].(float64) == 0 {
		t.Errorf("the line says %v", line)
	}
	if at, err := time.Parse(time.RFC3339, line["time"].(string)); err != nil || time.Since(at) > programtest.Patience {
		t.Errorf("its time is %v, %v", line["time"], err)
	}

	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	p.Signal(t, syscall.SIGUSR1)
	p.Stderr.Wait(t, "reopened")
	c := s.talk(t)
	p.Signal(t, syscall.SIGTERM)
	s.closes(t)
	c.Conn.Close()
	p.Exit(t)
	lines := logged(t, path, 1) // of those who looked whether the port is closed, too
	if !slices.ContainsFunc(lines, func(line map[string]any) bool { return line["client"] == c.Conn.LocalAddr().String() }) {
		t.Errorf("no line in the new file is of %v: %v", c.Conn.LocalAddr(), lines)
	}
}

// TestASIGHUPBesideASIGUSR1IsNotLost: whichever of the two is still waiting when the other comes, as while the program starts, the configuration is read.
func TestASIGHUPBesideASIGUSR1IsNotLost(t *testing.T) {
	h := onHangup()
	t.Cleanup(func() { signal.Reset(syscall.SIGHUP, syscall.SIGUSR1) }) // handle leaves them ignored
	arrived := make(chan os.Signal, 1)
	signal.Notify(arrived, syscall.SIGHUP, syscall.SIGUSR1)
	defer signal.Stop(arrived)
	for _, sig := range []syscall.Signal{syscall.SIGUSR1, syscall.SIGHUP} {
		if err := syscall.Kill(os.Getpid(), sig); err != nil {
			t.Fatal(err)
		}
		<-arrived // signals are handed out one after the other: the first one waits when the second one comes
	}
	reloaded := make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		h.handle(ctx, func() {}, func() { close(reloaded) })
	}()
	select {
	case <-reloaded:
	case <-time.After(programtest.Patience):
		t.Error("the configuration was not read")
	}
	stop()
	<-over
}
