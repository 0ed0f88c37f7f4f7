package main

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
)

// TestAPredecessorThatIsToldToStopIsTakenOverFrom: SIGTERM at each step. Up to the listeners it drains, and the successor begins alone; from then
// on the successor takes over. Either way each client has one process that serves it.
func TestAPredecessorThatIsToldToStopIsTakenOverFrom(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	for i, at := range steps {
		t.Run(at.name, func(t *testing.T) {
			path := takeoverPath(t)
			p := s.serve(t, "-takeover="+path, "-drain_timeout=1h")
			proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
			c := s.talk(t)
			b := &between{back: path, at: at}
			next := s.start(t, "-takeover="+b.stand(t))
			b.await()
			p.Signal(t, syscall.SIGTERM)
			p.Stderr.Wait(t, "draining for at most")
			b.release()
			next.Stderr.Wait(t, "the first state is in force")
			c.MustSay(t, "are you still there?")
			if i >= slices.IndexFunc(steps, func(s step) bool { return s.name == "listeners" }) {
				next.Stderr.Wait(t, "listeners, connections and sessions")
			} else {
				s.opens(t)
			}
			c.MustSay(t, "and now?")
			s.talk(t).Conn.Close() // a new client
			c.Conn.Close()
			if code := p.Exit(t).ExitCode(); code != exitDone {
				t.Errorf("exit status %d, want %d", code, exitDone)
			}
			s.talk(t).Conn.Close()
			kill(t, next)
			if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Error(err)
			}
		})
	}
}

// TestASuccessorThatAwaitsItsTurnEndsAtOnceWhenToldTo: the predecessor has half a minute to answer.
func TestASuccessorThatAwaitsItsTurnEndsAtOnceWhenToldTo(t *testing.T) {
	t.Parallel()
	path := takeoverPath(t)
	listener := newRaw(t, listenRaw(t, path))
	defer listener.close()
	p := newSite(t).start(t, "-takeover="+path)
	ping := listener.accept()
	defer ping.close()
	if f := ping.receive(); f != "\x09" {
		t.Errorf("it asks %q first", f)
	}
	p.Signal(t, syscall.SIGTERM)
	if f := ping.receive(); f != "" { // the end, long before it would give up
		t.Errorf("told to stop, it says %q", f)
	}
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

// TestAPredecessorThatDrainsLeavesTheRoutesToItsSuccessor, also when it was told to stop before that one served.
func TestAPredecessorThatDrainsLeavesTheRoutesToItsSuccessor(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	s := newSite(t)
	path := takeoverPath(t)
	args := []string{"-engine=portable", "-drain_timeout=1h"} // an engine whose connections end where they are
	p := s.serve(t, append(args, "-takeover="+path, "-service_cidr=10.96.0.0/12,fd00:96::/108")...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	b := &between{back: path + "-first", at: step{"listeners", 5, 1}}
	if err := errors.Join(os.Rename(path, b.back), os.Rename(b.stand(t), path)); err != nil { // routes are told apart by the path
		t.Fatal(err)
	}
	next := s.start(t, append(args, "-takeover="+path, "-service_cidr=10.96.0.0/12")...)
	b.await()
	p.Signal(t, syscall.SIGTERM)
	p.Stderr.Wait(t, "draining for at most")
	b.release()
	next.Stderr.Wait(t, "its listeners; its connections end there")
	routes := func() int64 {
		out, err := exec.Command("sh", "-c", "ip -4 route show table local proto 107; ip -6 route show table local proto 107").CombinedOutput()
		if err != nil {
			t.Errorf("ip: %v, %s", err, out)
		}
		return int64(strings.Count(string(out), "local "))
	}
	proxytest.Eventually(t, func() bool { return routes() == 1 }, "the successor to delete the route that it does not have")
	if n := proxytest.Settled(t, routes, 1200*time.Millisecond); n != 1 { // twice as long as a guard takes to put it back
		t.Errorf("then there are %d routes; want 1", n)
	}
	c.MustSay(t, "do you drain?")
	c.Conn.Close()
	p.Exit(t)
	if n := routes(); n != 1 {
		t.Errorf("after the end of the predecessor there are %d routes; want 1", n)
	}
}

// TestAPredecessorThatDrainsLeavesTheRoutesToAProcessThatBeganBesideIt: that one found nobody to take over from.
func TestAPredecessorThatDrainsLeavesTheRoutesToAProcessThatBeganBesideIt(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	s := newSite(t)
	path := takeoverPath(t)
	args := []string{"-drain_timeout=1h", "-takeover=" + path, "-service_cidr=10.96.0.0/12"}
	p := s.serve(t, args...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there", path)
	c := s.talk(t)
	p.Signal(t, syscall.SIGTERM)
	p.Stderr.Wait(t, "draining for at most")
	s.closes(t)
	next := s.serve(t, args...)
	proxytest.Eventually(t, func() bool { return exists(path) }, "%s is there again", path)
	c.Conn.Close()
	p.Exit(t)
	if n := proxytest.Settled(t, func() int64 { return routesListed(t) }, 1200*time.Millisecond); n != 1 { // twice as long as a guard takes to put one back
		t.Errorf("after the end of the predecessor there are %d routes; want 1", n)
	}
	if log := next.Stderr.String(); strings.Contains(log, "another program has deleted the route") {
		t.Errorf("the route was gone for a while: %s", log)
	}
	next.Signal(t, syscall.SIGTERM)
	next.Exit(t)
	if n := routesListed(t); n != 0 {
		t.Errorf("after the end of both there are %d routes; want none", n)
	}
}
