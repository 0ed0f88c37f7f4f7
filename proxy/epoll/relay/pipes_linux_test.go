package relay

import (
	"testing"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/epoll/socket"
)

// A pipe that is given back empty is lent again. One that still holds bytes is closed, for they belong to no connection.
func TestOnlyAnEmptyPipeIsLentAgain(t *testing.T) {
	pool := Pipes{Budget: admit.NewBudget(1000)}
	p := pool.Take()
	if p == nil || p.Size < leastPipe {
		t.Fatalf("the pool lends %+v", p)
	}
	pool.GiveBack(p)
	if again := pool.Take(); again != p {
		t.Errorf("an empty pipe is not lent again")
	}
	n, errno := socket.Write(p.W, []byte("left"))
	if errno != 0 {
		t.Fatal(errno)
	}
	p.N = n
	pool.GiveBack(p)
	if made, lent := pool.Made(); made != 0 || lent != 0 {
		t.Errorf("%d pipes, %d lent; want none", made, lent)
	}
	if used := pool.Budget.Used.Load(); used != 0 {
		t.Errorf("%d descriptors are taken", used)
	}
}

// However many are asked for, a pool has [mostPipes] pipes, and takes two descriptors for each until it is closed.
func TestAPoolIsBounded(t *testing.T) {
	pool := Pipes{Budget: admit.NewBudget(1000)}
	var lent []*pipe
	for range mostPipes + 1 {
		if p := pool.Take(); p != nil {
			lent = append(lent, p)
		}
	}
	if len(lent) > mostPipes || pool.Budget.Used.Load() != int64(2*len(lent)) { // fewer if the user has other pipes
		t.Errorf("%d are lent, %d descriptors taken", len(lent), pool.Budget.Used.Load())
	}
	for _, p := range lent {
		pool.GiveBack(p)
	}
	pool.Close()
	if used := pool.Budget.Used.Load(); used != 0 {
		t.Errorf("%d descriptors are taken after close", used)
	}
}
