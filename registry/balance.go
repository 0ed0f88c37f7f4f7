package registry

import "fmt"

// A Balance is the algorithm that chooses the endpoint of a new client.
type Balance uint8

// The algorithms, as HAProxy names them. BalanceUnsaid is that of a record that names none: the proxy's default.
const (
	BalanceUnsaid Balance = iota
	RoundRobin
	LeastConnections
	SourceAddress
)

var balanceNames = [...]string{BalanceUnsaid: "", RoundRobin: "roundrobin", LeastConnections: "leastconn", SourceAddress: "source"}

// String gives the algorithm as records spell it.
func (b Balance) String() string { return balanceNames[b] }

// ParseBalance reads the name of an algorithm.
func ParseBalance(s string) (Balance, error) {
	for b := RoundRobin; b <= SourceAddress; b++ {
		if s == balanceNames[b] {
			return b, nil
		}
	}
	return 0, fmt.Errorf("unknown algorithm %s: want roundrobin, leastconn or source", Quote(s))
}

// balanceAnnotation names the algorithm of a service. HAProxy's ingress controller has the same name for it.
const balanceAnnotation = "haproxy.org/load-balance"
