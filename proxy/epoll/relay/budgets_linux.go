package relay

// How much one direction may carry before it is others' turn, and how much is read at a time when
// it passes through our memory. The latter is also the most that is held for a side that stalls.
const (
	turnBudget = 256 << 10
	chunk      = 16 << 10
)

// How much all directions that carry in bulk may move in a turn, about, and how much each may however many they
// are: a client that says little has to wait until the turn is over. Up to eight may move a pipe full each, for
// that is cheapest. A turn moves at most turnTotal, and beyond it leastBudget for each of 64 events and for each of backlogATurn
// connections: 20 MiB in all.
const (
	turnTotal   = 8 << 20
	leastBudget = 64 << 10
)

// share is how much each of so many that carry in bulk may move in a turn.
func share(many int) int { return max(leastBudget, turnTotal/max(1, many)) }

// backlogATurn is how many connections go on in a turn. Each may move leastBudget at least, and all together turnTotal.
const backlogATurn = turnTotal / leastBudget

// Apportion sets how much each may have of the turn that begins.
func (r *Relays) Apportion() {
	r.share, r.bulky = share(r.bulky), 0
	r.moved = 0
}
