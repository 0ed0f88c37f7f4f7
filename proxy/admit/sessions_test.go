package admit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/traffic"
)

// A census is a SessionLimit with ports of services and sessions that exist only on paper.
type census struct {
	*SessionLimit
	perPort int
	ports   []*traffic.Tally
}

const censusTimeout = time.Minute

func newCensus(all, perPort, ports int) *census {
	c := &census{SessionLimit: NewSessionLimit(all), perPort: perPort}
	for range ports {
		c.ports = append(c.ports, new(traffic.Tally))
	}
	return c
}

// begin begins a session of a port.
func (c *census) begin(port int) (s, evicted *Entry, ok bool) {
	s = &Entry{Tally: c.ports[port]}
	s.Heard()
	evicted, _, ok = c.Admit(s, c.perPort, censusTimeout)
	return s, evicted, ok
}

// mustBegin begins sessions, none of which may evict or be refused.
func (c *census) mustBegin(t *testing.T, port, n int) (all []*Entry) {
	t.Helper()
	for range n {
		s, evicted, ok := c.begin(port)
		if evicted != nil || !ok {
			t.Fatalf("session %d evicted %v, admitted %v", len(all), evicted, ok)
		}
		all = append(all, s)
	}
	return all
}

func (s *Entry) silentSince(ago time.Duration) { s.lastHeard.Store(int64(monotonic.Now() - ago)) }

func TestTheOldestUnconfirmedSessionIsEvictedFirst(t *testing.T) {
	c := newCensus(4, 4, 1)
	s := c.mustBegin(t, 0, 4)
	c.Confirm(s[0])
	c.Confirm(s[2])
	for i, want := range []*Entry{s[1], s[3]} {
		newcomer, evicted, ok := c.begin(0)
		if !ok || evicted != want {
			t.Errorf("newcomer %d: evicted %d, %v; want %d", i, slices.Index(s, evicted), ok, slices.Index(s, want))
		}
		c.Confirm(newcomer)
	}
	if _, evicted, ok := c.begin(0); ok {
		t.Errorf("with all confirmed and in use, evicted %d", slices.Index(s, evicted))
	}
}

func TestAnUnconfirmedSessionGoesBeforeASilentConfirmedOne(t *testing.T) {
	c := newCensus(2, 2, 1)
	s := c.mustBegin(t, 0, 2)
	c.Confirm(s[0])
	s[0].silentSince(censusTimeout - time.Second)
	if _, evicted, _ := c.begin(0); evicted != s[1] {
		t.Errorf("evicted %d; want 1", slices.Index(s, evicted))
	}
}

func TestAConfirmedSessionIsEvictedOnlyWhenItIsSilent(t *testing.T) {
	c := newCensus(3, 3, 1)
	s := c.mustBegin(t, 0, 3)
	for _, s := range s {
		c.Confirm(s)
		s.silentSince(censusTimeout/2 - time.Second)
	}
	if _, _, ok := c.begin(0); ok {
		t.Error("a newcomer was admitted although all sessions are in use")
	}
	s[1].silentSince(censusTimeout / 2)
	if _, evicted, ok := c.begin(0); !ok || evicted != s[1] {
		t.Errorf("evicted %d, %v; want 1", slices.Index(s, evicted), ok)
	}
}

// One newcomer makes us look at a few sessions only; those who come after it at the others.
func TestASilentSessionIsFoundAmongManyInUse(t *testing.T) {
	const many = 10 * maxLooks
	c := newCensus(many, many, 1)
	s := c.mustBegin(t, 0, many)
	for _, s := range s {
		c.Confirm(s)
	}
	silent := s[many-1]
	silent.silentSince(censusTimeout)
	for range many/maxLooks - 1 {
		if _, _, ok := c.begin(0); ok {
			t.Fatal("more sessions were looked at than one newcomer is worth")
		}
	}
	if _, evicted, ok := c.begin(0); !ok || evicted != silent {
		t.Errorf("evicted %d, %v; want %d", slices.Index(s, evicted), ok, many-1)
	}
}

func TestTheLimitOfAPortIsItsOwn(t *testing.T) {
	c := newCensus(10, 2, 2)
	other := c.mustBegin(t, 1, 1) // the oldest of all
	s := c.mustBegin(t, 0, 2)
	if _, evicted, _ := c.begin(0); evicted != s[0] {
		t.Errorf("evicted %p; want the oldest of the same port, %p, not of the other, %p", evicted, s[0], other[0])
	}
}

func TestTheLimitForAllEvictsFromAnyPort(t *testing.T) {
	c := newCensus(3, 3, 2)
	other := c.mustBegin(t, 1, 1)
	c.mustBegin(t, 0, 2)
	if _, evicted, _ := c.begin(0); evicted != other[0] {
		t.Errorf("evicted %p; want the oldest of all, %p", evicted, other[0])
	}
}

// Sessions end while they are being confirmed or evicted.
func TestEndingASessionTwiceCountsOnce(t *testing.T) {
	c := newCensus(2, 2, 1)
	s := c.mustBegin(t, 0, 2)
	_, evicted, _ := c.begin(0)
	c.Remove(evicted)
	c.Confirm(evicted)
	c.Remove(s[1])
	c.Remove(s[1])
	c.mustBegin(t, 0, 1)
	if n := c.all.confirmed.Len(); n != 0 {
		t.Errorf("%d confirmed; want 0", n)
	}
}

// A successor may have lower limits than its predecessor, and adopts what that had.
func TestEachSessionIsCountedOrEvictedWhileLimitsAreExceeded(t *testing.T) {
	c := newCensus(1, 2, 1)
	var adopted []*Entry
	for range 3 {
		s := &Entry{Tally: c.ports[0]}
		c.Adopt(s, censusTimeout, censusTimeout, true)
		adopted = append(adopted, s)
	}
	_, evicted, ok := c.begin(0)
	if !ok || evicted != adopted[0] {
		t.Errorf("evicted %d, %v; want 0", slices.Index(adopted, evicted), ok)
	}
	if n := c.Counted(); n != 3 {
		t.Errorf("%d sessions are counted; 4 began, and one was evicted", n)
	}
}

// Ports of services come and go for as long as the proxy runs.
func TestAPortWithoutSessionsTakesNoMemory(t *testing.T) {
	c := newCensus(2, 2, 3)
	first, second := c.mustBegin(t, 0, 1), c.mustBegin(t, 1, 1)
	c.Confirm(first[0])
	c.Confirm(second[0])
	if _, _, ok := c.begin(2); ok {
		t.Error("a newcomer was admitted although all sessions are in use")
	}
	c.Remove(first[0])
	c.Remove(second[0])
	if n := len(c.of); n != 0 {
		t.Errorf("%d ports are remembered; want 0", n)
	}
}

// The same as a SessionLimit, with plain slices: slow, and plain to see right.
type censusModel struct {
	all, perPort int
	unconfirmed  []*Entry // oldest first
	confirmed    []*Entry
}

func (m *censusModel) begin(s *Entry) (evicted *Entry, ok bool) {
	of := func(list []*Entry) []*Entry { // the same port's
		return slices.DeleteFunc(slices.Clone(list), func(o *Entry) bool { return o.Tally != s.Tally })
	}
	if len(of(m.unconfirmed))+len(of(m.confirmed)) >= m.perPort {
		if evicted, ok = m.evict(of(m.unconfirmed)); !ok {
			return nil, false
		}
	} else if len(m.unconfirmed)+len(m.confirmed) >= m.all {
		if evicted, ok = m.evict(m.unconfirmed); !ok {
			return nil, false
		}
	}
	m.unconfirmed = append(m.unconfirmed, s)
	return evicted, true
}

func (m *censusModel) evict(from []*Entry) (*Entry, bool) {
	if len(from) == 0 {
		return nil, false
	}
	oldest := from[0]
	m.remove(oldest)
	return oldest, true
}

func (m *censusModel) remove(s *Entry) {
	is := func(o *Entry) bool { return o == s }
	m.unconfirmed = slices.DeleteFunc(m.unconfirmed, is)
	m.confirmed = slices.DeleteFunc(m.confirmed, is)
}

func (m *censusModel) confirm(s *Entry) {
	if i := slices.Index(m.unconfirmed, s); i >= 0 {
		m.unconfirmed = slices.Delete(m.unconfirmed, i, i+1)
		m.confirmed = append(m.confirmed, s)
	}
}

func TestSessionLimitAgreesWithItsModel(t *testing.T) {
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 0))
		c := newCensus(8, 5, 3)
		m := &censusModel{all: 8, perPort: 5}
		var ever []*Entry // also those that ended: late confirmations and endings must not matter
		for step := range 500 {
			what := ""
			switch random.IntN(4) {
			case 0, 1:
				s, evicted, ok := c.begin(random.IntN(3))
				wantEvicted, wantOK := m.begin(s)
				what = "begin"
				if evicted != wantEvicted || ok != wantOK {
					t.Fatalf("seed %d, step %d: evicted %p, %v; want %p, %v", seed, step, evicted, ok, wantEvicted, wantOK)
				}
				ever = append(ever, s)
			case 2:
				if len(ever) > 0 {
					s := ever[max(0, len(ever)-1-random.IntN(10))]
					c.Confirm(s)
					m.confirm(s)
					what = "confirm"
				}
			case 3:
				if len(ever) > 0 {
					s := ever[max(0, len(ever)-1-random.IntN(10))]
					c.Remove(s)
					m.remove(s)
					what = "remove"
				}
			}
			got := fmt.Sprint(c.all.unconfirmed.Len(), c.all.confirmed.Len())
			if want := fmt.Sprint(len(m.unconfirmed), len(m.confirmed)); got != want {
				t.Fatalf("seed %d, step %d, %s: unconfirmed and confirmed %s; want %s", seed, step, what, got, want)
			}
		}
	}
}
