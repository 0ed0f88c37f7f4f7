package ports

import "testing"

func TestALocalRangeKnowsWhichPortsConnectionsAreGiven(t *testing.T) {
	r := LocalRange{Range: Range{32768, 60999}, Reserved: []Range{{100, 200}, {33000, 33000}, {60000, 65535}}}
	for port, want := range map[uint16]bool{0: false, 150: false, 32767: false, 32768: true, 33000: false, 33001: true, 59999: true, 60000: false, 61000: false} {
		if got := r.Contains(port); got != want {
			t.Errorf("port %d: %v", port, got)
		}
	}
	if got, want := r.most(), (60999-32768+1-1-1000)/4; got != want {
		t.Errorf("a quarter is %d; want %d", got, want)
	}
	if (LocalRange{}).Contains(0) || (LocalRange{}).Contains(80) {
		t.Error("an unknown range holds ports")
	}
}
