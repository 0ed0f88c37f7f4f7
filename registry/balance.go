package registry

import (
	"fmt"
	"slices"
	"strings"
)

// A Balance is the algorithm that chooses the endpoint of a new client.
type Balance uint8

// The algorithms, as HAProxy names them. BalanceUnsaid is that of a record that names none: the proxy's default.
const (
	BalanceUnsaid Balance = iota
	RoundRobin
	LeastConnections
	SourceAddress
	endOfBalances // a new algorithm stands before it, and has its name below
)

var balanceNames = [endOfBalances]string{BalanceUnsaid: "", RoundRobin: "roundrobin", LeastConnections: "leastconn", SourceAddress: "source"}

// String gives the algorithm as records spell it.
func (b Balance) String() string { return balanceNames[b] }

// Balances returns all algorithms that a record or a flag may name.
func Balances() (all []Balance) {
	for b := RoundRobin; b < endOfBalances; b++ {
		all = append(all, b)
	}
	return all
}

// ParseBalance reads the name of an algorithm.
func ParseBalance(s string) (Balance, error) {
	names := balanceNames[RoundRobin:]
	if i := slices.Index(names, s); i >= 0 {
		return RoundRobin + Balance(i), nil
	}
	last := len(names) - 1
	return 0, fmt.Errorf("unknown algorithm %s: want %s or %s", Quote(s), strings.Join(names[:last], ", "), names[last])
}

// readBalance reads the algorithm. An unknown one is an error: clients that need source would lose their state at any other.
func (t *Terms) readBalance(s string) (err error) {
	t.Balance, err = ParseBalance(s)
	return err
}
