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

// setBalance sets the algorithm. An unknown one is an error: clients that need source would lose their state at any other.
func (spec *serviceSpec) setBalance(t *Terms) (err error) {
	if name, ok := spec.annotations[balanceAnnotation]; ok {
		t.Balance, err = ParseBalance(name)
	}
	return inAnnotation(balanceAnnotation, err)
}

// inAnnotation names the annotation that an error is about.
func inAnnotation(name string, err error) error {
	if err != nil {
		return fmt.Errorf("annotation %s: %w", name, err)
	}
	return nil
}
