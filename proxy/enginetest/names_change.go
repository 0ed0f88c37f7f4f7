package enginetest

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
)

// What clients get of a name whose addresses change, on each engine.

// A zone is what a nameserver says of one name.
type zone struct {
	mu      sync.Mutex // guards the fields below
	addrs   []netip.Addr
	lookUps int
}

// set makes the addresses of the name 127.0.0.n.
func (z *zone) set(ns ...byte) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.addrs = nil
	for _, n := range ns {
		z.addrs = append(z.addrs, netip.AddrFrom4([4]byte{127, 0, 0, n}))
	}
}

func (z *zone) lookUp(context.Context, string, string) ([]netip.Addr, error) {
	z.mu.Lock()
	defer z.mu.Unlock()
	if z.lookUps++; len(z.addrs) == 0 {
		return nil, errors.New("no nameserver answers")
	}
	return z.addrs, nil
}

// asked counts the look-ups.
func (z *zone) asked() int {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.lookUps
}

// serves makes z the nameserver of a resolver, which keeps its answers for so long.
func (z *zone) serves(r *admit.Resolver, floor time.Duration) { r.Lookup, r.Floor = z.lookUp, floor }

// Lifetimes of answers: so short that a client which comes later gets another one; and for names that are looked up beside sessions.
const (
	moment = time.Nanosecond
	beside = 20 * time.Millisecond
)

// lookedUp waits until the name was looked up beside sessions, and the answer is known.
func (z *zone) lookedUp(t *testing.T) {
	t.Helper()
	more := z.asked() + 3 // one may be under way, and the next one follows only when its answer is known
	proxytest.Eventually(t, func() bool { return z.asked() >= more }, "look-ups beside the sessions")
}

// needsThree skips a test on systems without a few addresses of the loopback.
func needsThree(t *testing.T) { proxytest.NeedsAddresses(t, "127.0.0.2", "127.0.0.3") }

// named starts TCP endpoints at 127.0.0.1, 127.0.0.2 and so on, with one port, which say their number.
func named(t *testing.T, most byte) (port uint16, all []*proxytest.TCPServer) {
	t.Helper()
	for n := byte(1); n <= most; n++ {
		s := proxytest.ServeTCP(t, fmt.Sprintf("127.0.0.%d:%d", n, port), proxytest.Identify(fmt.Sprint(n)))
		port, all = s.Addr.IP.Port(), append(all, s)
	}
	return port, all
}

// namedUDP is named over UDP.
func namedUDP(t *testing.T, most byte) (port uint16, all []*proxytest.UDPServer) {
	t.Helper()
	for n := byte(1); n <= most; n++ {
		s := proxytest.ServeUDP(t, fmt.Sprintf("127.0.0.%d:%d", n, port), proxytest.IdentifyUDP(fmt.Sprint(n)))
		port, all = s.Addr.IP.Port(), append(all, s)
	}
	return port, all
}

// given counts which endpoints clients are given by ask, one after the other.
func given(clients int, ask func() string) map[string]int {
	of := make(map[string]int)
	for range clients {
		of[ask()]++
	}
	return of
}

// same reports an error unless clients were given endpoints as often as is wanted.
func same(t *testing.T, when string, got, want map[string]int) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s, clients were given %v; want %v", when, got, want)
	}
}

// The addresses of a name take turns. One that is added gets its share of the clients that come then, and one that is removed gets none:
// without a restart, and from the first client on.
func (u suite) TestClientsFollowTheAddressesOfANameInTurn(t *testing.T) {
	needsThree(t)
	e, open := u.newTCP(t, engine.Config{})
	port, _ := named(t, 3)
	z := new(zone)
	z.serves(e.Resolver, moment)
	z.set(2, 1)
	addr := open(Named("db", port))
	ask := func() string { return proxytest.WhoAnswers(t, addr) }
	same(t, "of two addresses", given(6, ask), map[string]int{"1": 3, "2": 3})
	z.set(3, 1, 2)
	same(t, "after one was added", given(6, ask), map[string]int{"1": 2, "2": 2, "3": 2})
	z.set(3)
	same(t, "after two were removed", given(6, ask), map[string]int{"3": 6})
	z.set()
	same(t, "while no nameserver answers", given(6, ask), map[string]int{"3": 6})
}

func (u suite) TestSessionsFollowTheAddressesOfANameInTurn(t *testing.T) {
	needsThree(t)
	e := u.newUDP(t, engine.Config{})
	port, _ := namedUDP(t, 3)
	z := new(zone)
	z.serves(e.Resolver, beside)
	z.set(2, 1)
	s := e.Serve(t, Named("dns", port))
	ask := func() string { return proxytest.DialUDP(t, s.Addr).Ask(t).Name }
	same(t, "of two addresses", given(6, ask), map[string]int{"1": 3, "2": 3})
	z.set(3, 1, 2)
	z.lookedUp(t)
	same(t, "after one was added", given(6, ask), map[string]int{"1": 2, "2": 2, "3": 2})
	z.set(3)
	z.lookedUp(t)
	same(t, "after two were removed", given(6, ask), map[string]int{"3": 6})
}

// The address of a name moves, and the old one refuses, or is silent. The answer may be used yet, as its TTL says; the client whose dial
// fails waits for the fresh one.
func (u suite) TestAFailedDialByAnOldAnswerWaitsForTheFreshOne(t *testing.T) {
	needsThree(t)
	for name, dead := range map[string]func(t *testing.T, at string){
		"it refuses":   func(*testing.T, string) {},
		"it is silent": func(t *testing.T, at string) { proxytest.BlackHoleAt(t, at) },
	} {
		t.Run(name, func(t *testing.T) {
			e, open := u.newTCP(t, engine.Config{DialTimeout: time.Second})
			port, all := named(t, 2)
			z := new(zone)
			z.serves(e.Resolver, time.Minute)
			z.set(1)
			addr := open(Named("db", port))
			if got := proxytest.WhoAnswers(t, addr); got != "1" {
				t.Fatalf("answered by %q", got)
			}
			z.set(2)
			all[0].Close()
			dead(t, fmt.Sprintf("127.0.0.1:%d", port))
			time.Sleep(time.Second) // a younger answer is as good as a fresh one
			same(t, "after the address moved", given(3, func() string { return proxytest.WhoAnswers(t, addr) }), map[string]int{"2": 3})
			if got := z.asked(); got != 2 {
				t.Errorf("the name was looked up %d times; want twice", got)
			}
		})
	}
}

// The same for a session: the datagram that is refused is kept for the fresh address.
func (u suite) TestADatagramThatAnOldAddressRefusesGoesToTheFreshOne(t *testing.T) {
	needsThree(t)
	e := u.newUDP(t, engine.Config{})
	port, all := namedUDP(t, 2)
	z := new(zone)
	z.serves(e.Resolver, time.Minute)
	z.set(1)
	s := e.Serve(t, Named("dns", port))
	began := proxytest.DialUDP(t, s.Addr)
	if got := began.Ask(t).Name; got != "1" {
		t.Fatalf("answered by %s", got)
	}
	z.set(2)
	all[0].Close()
	time.Sleep(time.Second) // a younger answer is as good as a fresh one
	for _, client := range []*proxytest.UDPClient{proxytest.DialUDP(t, s.Addr), began} {
		if got := client.Ask(t).Name; got != "2" {
			t.Errorf("answered by %s", got)
		}
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{})
}

// The address of a name moves, and the old one answers on: a database that was demoted. Sessions move with their next datagram, also those
// whose clients seldom send, since the name is looked up beside them. A change of the order moves none.
func (u suite) TestASessionLeavesAnAddressThatItsNameDoesNotStandForAnyMore(t *testing.T) {
	needsThree(t)
	e := u.newUDP(t, engine.Config{})
	port, _ := namedUDP(t, 3)
	z := new(zone)
	z.serves(e.Resolver, beside)
	z.set(1, 2)
	s := e.Serve(t, Named("dns", port))
	clients := []*proxytest.UDPClient{proxytest.DialUDP(t, s.Addr), proxytest.DialUDP(t, s.Addr)}
	first, second := clients[0].Ask(t), clients[1].Ask(t)
	z.set(2, 1)
	z.lookedUp(t)
	if a, b := clients[0].Ask(t), clients[1].Ask(t); a != first || b != second {
		t.Errorf("only the order has changed, and sessions went from %v to %v and from %v to %v", first, a, second, b)
	}
	z.set(3, 2)
	z.lookedUp(t)
	moved, stays := clients[0], clients[1]
	if first.Name == "2" {
		moved, stays = stays, moved
		first, second = second, first
	}
	if got := moved.Ask(t).Name; got != "2" && got != "3" {
		t.Errorf("the session of an address that is gone was answered by %s", got)
	}
	if got := stays.Ask(t); got != second {
		t.Errorf("the session of an address that stays went from %v to %v", second, got)
	}
	z.set()
	z.lookedUp(t)
	if got := stays.Ask(t); got != second {
		t.Errorf("while no nameserver answers, a session went from %v to %v", second, got)
	}
	if got := s.SessionCount(); got != 2 {
		t.Errorf("%d sessions; want 2", got)
	}
	s.HasDropped(t, map[traffic.DropReason]uint64{})
	s.close()
	proxytest.Settled(t, func() int64 { return int64(z.asked()) }, 10*beside) // nobody holds the name any more
}
