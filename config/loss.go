package config

import "time"

// A Loss is that a source lost most of its services at once: a directory was moved, a prefix was deleted, another registry was mounted.
// The services are gone, as the registry says; it may not have been meant. The zero value is none.
type Loss struct {
	At   time.Time
	Held int // services just before
}

// lossLasts is how long a loss goes on while it comes in several steps.
const lossLasts = 10 * time.Second

// After returns the loss after a step from was to is services. A step that takes half of the services or more, and two at least, or the
// last one, is a loss. It is over when there are as many as before.
func (l Loss) After(was, is int, now time.Time) Loss {
	lost := was - is
	switch {
	case is >= l.Held:
		l = Loss{}
	case now.Sub(l.At) < lossLasts:
		return l
	}
	if lost > 0 && (is == 0 || lost >= 2 && 2*lost >= was) {
		return Loss{now, was}
	}
	return l
}

// lossTold is for how long operators are told of a loss after which some services are left: it may have been meant.
const lossTold = time.Hour

// Missing is how many services are missing, of which is are left, while operators are to be told of the loss: 0 for no more.
func (l Loss) Missing(is int, now time.Time) int {
	if is > 0 && now.Sub(l.At) >= lossTold {
		return 0
	}
	return max(l.Held-is, 0)
}
