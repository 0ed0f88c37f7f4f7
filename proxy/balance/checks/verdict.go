package checks

import (
	"cmp"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/golang/glog"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/registry"
)

var errSilent = errors.New("no answer in time")

// A change is what a log line is about.
type change struct {
	addr  registry.Addr
	fails bool
}

// finish ends a check: err says why it failed, nil that it passed.
func (c *Checker) finish(t *Target, err error) {
	c.descriptors.Release(t.descriptors)
	shortage := sockopt.LacksResources(err) // it is this node that lacks something
	defer c.again(t, !shortage)
	if shortage {
		return
	}
	counter := &c.passed
	if err != nil {
		counter = &c.failed
		t.turn++
	}
	counter.Add(1)
	c.mu.Lock()
	was := t.State()
	is := was.after(err, &t.Key)
	t.state.Store(&is)
	t.tellLocked(&was, &is)
	watchers := len(t.watchers) // none: it was given up meanwhile, and the result is nobody's
	c.mu.Unlock()
	if is.Fails != was.Fails && watchers > 0 {
		c.log(t, &is, watchers)
	}
}

// after returns the state after a check: err says why it failed, nil that it passed.
func (s *State) after(err error, k *Key) State {
	is := State{Fails: s.Fails, Known: true, Since: s.Since, Refused: errors.Is(err, syscall.ECONNREFUSED), Overdue: s.Overdue}
	if err != nil {
		is.Err = err.Error()
	}
	if enough := k.Fall; s.Fails != (err != nil) {
		if s.Fails {
			enough = k.Rise
		}
		if is.Run = s.Run + 1; is.Run >= enough {
			is.Run, is.Fails, is.Since = 0, !s.Fails, time.Now()
		}
	}
	if is.Since.IsZero() {
		is.Since = time.Now()
	}
	return is
}

// tellLocked tells the watchers what a check has changed.
func (t *Target) tellLocked(was, is *State) {
	protocol := t.Question.Protocol
	noted := !was.Known || (is.Err == "") != (was.Err == "") || is.Refused != was.Refused
	for w := range t.watchers {
		if is.Fails != was.Fails {
			w.Checked(protocol, !is.Fails)
			continue
		}
		if is.Passed() {
			w.Passed(protocol)
		}
		if noted {
			w.Noted(protocol)
		}
	}
}

// log logs that a target fails, or passes again, for so many watchers. It needs no lock: a slow log delays no other check.
func (c *Checker) log(t *Target, is *State, watchers int) {
	note, ok := c.changes.Allow(change{t.Addr, is.Fails})
	switch {
	case !ok:
	case is.Fails:
		glog.Warningf("checks of %s over %s fail: %s; no client is sent there while another endpoint of its service answers (services: %d)%s", t.Addr, t.Question.Protocol, is.Err, watchers, note)
	default:
		glog.Infof("checks of %s over %s pass again%s", t.Addr, t.Question.Protocol, note)
	}
}

// Counts are what the checks have found.
type Counts struct {
	Targets        int    // addresses that are checked
	Failing        int    // of them
	Unknown        int    // of them: not checked yet
	Overdue        int    // of them: without a result for two intervals and a timeout
	Passed, Failed uint64 // checks since the start
}

// Counts returns what the checks have found.
func (c *Checker) Counts() Counts {
	n := Counts{Passed: c.passed.Load(), Failed: c.failed.Load()}
	c.mu.Lock()
	defer c.mu.Unlock()
	n.Targets, n.Overdue = len(c.targets), len(c.targets)-len(c.expiring)
	for _, t := range c.targets {
		switch s := t.state.Load(); {
		case s.Fails:
			n.Failing++
		case !s.Known:
			n.Unknown++
		}
	}
	return n
}

// Failing returns targets that fail, those that fail for longest first, and most at most.
func (c *Checker) Failing(most int) (failing []*Target) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.targets {
		if t.state.Load().Fails {
			failing = append(failing, t)
		}
	}
	slices.SortFunc(failing, func(a, b *Target) int {
		return cmp.Or(a.State().Since.Compare(b.State().Since), cmp.Compare(a.Addr.String(), b.Addr.String()))
	})
	return failing[:min(most, len(failing))]
}
