package reactor

import (
	"testing"
	"time"

	"kubeproxy/internal/monotonic"
)

func TestATokenIsWhatItWasWhenItComesBack(t *testing.T) {
	for _, want := range []Token{
		{Waker, 0, 0},
		{7, 1<<31 - 1, 1<<GenerationBits - 1},
		{3, 12345, 678},
	} {
		ev := want.event(0)
		if got := TokenOf(&ev); got != want {
			t.Errorf("got %+v; want %+v", got, want)
		}
	}
}

// TestAWaitEndsThoughItsAlarmWasDrainedInTheTurn: the alarm of the turn before rings while the turn drains another wake, and only then
// does the turn wait for the same time. Nothing else would end that wait.
func TestAWaitEndsThoughItsAlarmWasDrainedInTheTurn(t *testing.T) {
	p, err := NewPoller(false)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	began := monotonic.Now()
	due := began + 2*time.Millisecond
	p.setAlarm(due)
	for p.Poll(); p.happened == 0; p.Poll() { // until it rings
		time.Sleep(100 * time.Microsecond)
	}
	p.Drain()
	over := make(chan struct{})
	go func() {
		p.Wait(began, due)
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the wait does not end")
		p.Wake()
		<-over
	}
}

// TestAnEventJustBeforeTheDoorOpensEndsThePark: an event ended the park before, so the door is still in the kernel's list of what has events,
// and the runtime is not told when the door opens. It would sleep until the next event of any socket.
func TestAnEventJustBeforeTheDoorOpensEndsThePark(t *testing.T) {
	p, err := NewPoller(true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	time.AfterFunc(time.Millisecond, p.Wake)
	p.Wait(monotonic.Now(), monotonic.Never) // parks
	p.Drain()
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = p.parking.Read(func(uintptr) bool {
			if p.Poll(); p.happened == 0 {
				p.Wake()
				p.openDoor()
			}
			return p.happened > 0
		})
	}()
	select {
	case <-over:
	case <-time.After(10 * time.Second):
		t.Error("the park does not end")
		p.Wake()
		<-over
	}
}
