package health

import "kubeproxy/proxy/traffic"

// A Census counts the endpoints that new clients can be given over one protocol, by what a client of each gets.
type Census struct {
	of                     [NumConditions]int
	offered, failing, full int
}

// Add counts an endpoint. h is nil if nothing is known of it; full: it has as many clients as it may.
func (c *Census) Add(h *Health, full bool) {
	c.offered++
	c.of[h.condition(full)]++
	if h != nil && h.FailsCheck() {
		c.failing++
	}
	if full {
		c.full++
	}
}

// IsEmpty reports whether there is no such endpoint.
func (c *Census) IsEmpty() bool { return c.offered == 0 }

// Condition returns what new clients get; refuses: they are given no endpoint whose checks fail, though all do.
func (c *Census) Condition(refuses bool) Condition {
	switch {
	case c.offered == 0:
		return NotAllowed
	case c.failing == c.offered && refuses:
		return AllFailed
	case c.of[Served] > 0:
		return Served
	case c.of[AllFull] > 0, c.full == c.offered:
		return AllFull
	case c.of[ChecksFail] > 0 && !refuses:
		return ChecksFail
	}
	for _, why := range [...]Condition{NoAnswer, NameFailed, NotAllowed} { // of several, that which the client is told
		if c.of[why] > 0 {
			return why
		}
	}
	return OwnListener
}

// condition returns what a client of an endpoint gets, as far as is known.
func (h *Health) condition(full bool) Condition {
	if h != nil {
		switch why, _ := h.Unusable(); {
		case why == traffic.NameFailed:
			return NameFailed
		case why == traffic.EndpointNotAllowed:
			return NotAllowed
		case why == traffic.OwnListener:
			return OwnListener
		case h.EjectedUntil() != 0:
			return NoAnswer
		case h.FailsCheck():
			return ChecksFail
		}
	}
	if full {
		return AllFull
	}
	return Served
}
