// Package positions finds one of n positions, at a cost that does not depend on how many there are: [Shares] which has its turn, or is drawn, as
// often as its weight says; [Readiness] the next that is ready, or returns first; [Ring] the one that a hash belongs to; [Two] any two, at random.
package positions
