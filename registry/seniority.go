package registry

import "cmp"

// A Seniority is what decides which of two services comes first where both want one port (D30).
type Seniority struct {
	Created int64
	Name    Name
}

// Compare orders by age, the older first, and then by name.
func (s Seniority) Compare(t Seniority) int {
	return cmp.Or(cmp.Compare(s.Created, t.Created), s.Name.Compare(t.Name))
}
