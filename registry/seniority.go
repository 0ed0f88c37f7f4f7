package registry

import "cmp"

// A Seniority decides which of two claims on one port comes first (D30).
type Seniority struct {
	Rank  int   // of the source; revisions of two sources cannot be compared
	Since int64 // see [Service.ClaimedSince]
	Name  Name
}

// Compare orders by the rank of the source, then by age, the older first, and then by name.
func (s Seniority) Compare(t Seniority) int {
	return cmp.Or(cmp.Compare(s.Rank, t.Rank), cmp.Compare(s.Since, t.Since), s.Name.Compare(t.Name))
}
