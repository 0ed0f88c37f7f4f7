package health

// A Standing says whether clients can be given an endpoint when no failed attempt of theirs is seen, and none is made again elsewhere.
type Standing uint8

// The standings of an endpoint over one protocol.
const (
	Unchecked  Standing = iota // it is not checked
	Awaited                    // no check of it has ended
	Sound                      // its last check passed, and it gets its whole share of clients
	Overdue                    // its last check passed, and the next ones have had no result for too long
	Doubtful                   // its last check was not answered as it has to be
	Unsettled                  // its last check was refused, the attempt of a client failed, or it warms up
	Failing                    // its checks fail, so clients are given others
	Weighted                   // nothing worse is known of it, and it gets another share of clients than one of weight 1
	Overridden                 // likewise, by an operator, and so for a while
)
