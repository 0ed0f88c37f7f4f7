package checks

import (
	"time"

	"kubeproxy/proxy/handover"
)

// Export returns what a successor needs of an address whose checks fail, or whose last check failed; the zero value for any other.
func (s *State) Export() (r handover.Check) {
	if s.Fails || s.Err != "" {
		r = handover.Check{Known: true, Fails: s.Fails, For: max(time.Since(s.Since), 0), Err: s.Err, Run: uint64(s.Run)}
	}
	return r
}

// StateOf returns the state of a predecessor's message.
func StateOf(r *handover.Check) State {
	return State{Known: r.Known, Fails: r.Fails, Since: time.Now().Add(-r.For), Err: r.Err, Run: int(min(r.Run, maxRun))}
}

// maxRun bounds the results in a row that a message has.
const maxRun = 1 << 20

// Adopt has a target go on from the state that a predecessor knows, and tells its watchers. What checks of this process have found stays,
// but for an address that fails there and has passed here: fewer checks are less to go by.
func (c *Checker) Adopt(t *Target, s State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adoptLocked(t, s)
}

func (c *Checker) adoptLocked(t *Target, s State) {
	was := t.State()
	if was.Known && (was.Fails || !s.Fails) {
		return
	}
	s.Overdue = was.Overdue
	t.state.Store(&s)
	for w := range t.watchers {
		if s.Fails {
			w.Checked(t.Question.Protocol, false)
		} else {
			w.Noted(t.Question.Protocol)
		}
	}
}
