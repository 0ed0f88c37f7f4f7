package relay

import (
	"testing"
)

// However many connections carry in bulk, a turn in which all of them do is short, until there are so many that each
// would move too little to be worth its system calls.
func TestManyThatCarryInBulkShareATurn(t *testing.T) {
	for many := range 1000 {
		each := share(many)
		switch {
		case many <= 8 && each < maxPipe:
			t.Errorf("%d may move %d each; want a pipe full, %d", many, each, maxPipe)
		case many*each > turnTotal && each > leastBudget:
			t.Errorf("%d may move %d each; want %d in all", many, each, turnTotal)
		case each < leastBudget:
			t.Errorf("%d may move %d each; want no less than %d", many, each, leastBudget)
		}
	}
}
