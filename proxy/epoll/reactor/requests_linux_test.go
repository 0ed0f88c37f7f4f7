package reactor

import (
	"slices"
	"testing"
	"time"
)

// A loop does not wait for those who ask it for something: it comes back for that in its next turn, and does not sleep before.
func TestALoopDoesNotWaitForThoseWhoAsk(t *testing.T) {
	p, err := NewPoller(true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	turn := Turn{Clock: func() time.Duration { return 0 }}
	q := Requests{Poller: p}
	var met []int
	for i := range 2 {
		q.Do(func() { met = append(met, i) })
	}
	q.mu.Lock() // one more asks, and the system does not run it just now
	q.Meet(&turn)
	q.mu.Unlock()
	if len(met) > 0 || !q.Left() {
		t.Errorf("while another one asks, %d requests were met, and some may be left: %t", len(met), q.Left())
	}
	q.Meet(&turn)
	if !slices.Equal(met, []int{0, 1}) || q.Left() {
		t.Errorf("the requests %d were met, and some may be left: %t", met, q.Left())
	}
	q.Do(func() { met = append(met, 2) })
	q.mu.Lock()
	q.Meet(&turn)
	q.mu.Unlock()
	if !q.MeetAll() || len(met) != 3 || q.Left() {
		t.Errorf("at rest, the requests %d were met, and some may be left: %t", met, q.Left())
	}
}
