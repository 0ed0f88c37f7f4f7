package registry

import "cmp"

// A Precedence decides which of two claims on one port comes first (D30).
type Precedence struct {
	Rank  int   // of the source; revisions of two sources cannot be compared
	Since int64 // see [Service.ClaimedSince]
	Name  Name
}

// Compare orders by the rank of the source, then by age, the older first, and then by name.
func (s Precedence) Compare(t Precedence) int {
	return cmp.Or(cmp.Compare(s.Rank, t.Rank), cmp.Compare(s.Since, t.Since), s.Name.Compare(t.Name))
}
