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
	shortage := sockopt.IsShortage(err) // it is this node that lacks something
	defer c.again(t, !shortage)
	if shortage {
		return
	}
	counter, text := &c.passed, ""
	if err != nil {
		counter, text = &c.failed, err.Error()
		t.turn++
	}
	counter.Add(1)
	was := t.state.Load()
	is := State{Fails: was.Fails, Known: true, Since: was.Since, Err: text, Refused: errors.Is(err, syscall.ECONNREFUSED), Overdue: was.Overdue}
	if enough := t.Fall; was.Fails != (err != nil) {
		if was.Fails {
			enough = t.Rise
		}
		if is.Run = was.Run + 1; is.Run >= enough {
			is.Run, is.Fails, is.Since = 0, !was.Fails, time.Now()
		}
	}
	if is.Since.IsZero() {
		is.Since = time.Now()
	}
	if is != *was && !t.state.CompareAndSwap(was, &is) {
		return // what a predecessor knew has come meanwhile, and the next check goes on from there
	}
	if is.Fails != was.Fails {
		c.tell(t, is)
		return
	}
	noted := !was.Known || (is.Err == "") != (was.Err == "") || is.Refused != was.Refused
	passed := is.Passed()
	if !noted && !passed {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock() // before again, which takes it anew
	for w := range t.watchers {
		if passed {
			w.Passed(t.Question.Protocol)
		}
		if noted {
			w.Noted(t.Question.Protocol)
		}
	}
}

// tell tells the watchers, and the log.
func (c *Checker) tell(t *Target, is State) {
	c.mu.Lock()
	for w := range t.watchers {
		w.Checked(t.Question.Protocol, !is.Fails)
	}
	n := len(t.watchers)
	c.mu.Unlock()
	note, ok := c.changes.Allow(change{t.Addr, is.Fails})
	switch {
	case !ok:
	case is.Fails:
		glog.Warningf("checks of %s over %s fail: %s; no client is sent there while another endpoint of its service answers (services: %d)%s", t.Addr, t.Question.Protocol, is.Err, n, note)
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
