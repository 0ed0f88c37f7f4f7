package config

import (
	"testing"
	"time"
)

func TestALossIsThatMostServicesGoAtOnce(t *testing.T) {
	start := time.Unix(1000, 0)
	for _, c := range []struct {
		name  string
		steps []int // services after each second
		want  Loss
	}{
		{"none was there", []int{0, 0}, Loss{}},
		{"they come", []int{0, 5, 10}, Loss{}},
		{"all go", []int{7, 0, 0}, Loss{start.Add(time.Second), 7}},
		{"the only one goes", []int{1, 0}, Loss{start.Add(time.Second), 1}},
		{"one of two goes", []int{2, 1}, Loss{}},
		{"half of four go", []int{4, 2}, Loss{start.Add(time.Second), 4}},
		{"less than half go", []int{10, 6, 4, 3}, Loss{}},
		{"they go in steps", []int{10, 4, 1, 0}, Loss{start.Add(time.Second), 10}},
		{"some come back", []int{10, 0, 9}, Loss{start.Add(time.Second), 10}},
		{"all come back", []int{10, 0, 10}, Loss{}},
		{"all come back and go", []int{10, 0, 10, 0}, Loss{start.Add(3 * time.Second), 10}},
		{"more go later", []int{10, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 0}, Loss{start.Add(12 * time.Second), 4}},
	} {
		var l Loss
		was := 0
		for i, is := range c.steps {
			l, was = l.After(was, is, start.Add(time.Duration(i)*time.Second)), is
		}
		if l != c.want {
			t.Errorf("%s: the loss is %+v; want %+v", c.name, l, c.want)
		}
	}
}

// TestALossIsToldUntilServicesAreThere: without end while none is left, and for an hour while some are, for it may have been meant.
func TestALossIsToldUntilServicesAreThere(t *testing.T) {
	at := time.Unix(1000, 0)
	for _, c := range []struct {
		name      string
		services  int
		loss      Loss
		after     time.Duration
		all, some int
	}{
		{"nothing was lost", 0, Loss{}, 0, 0, 0},
		{"all are gone", 0, Loss{at, 7}, time.Second, 7, 0},
		{"all are gone for a day", 0, Loss{at, 7}, 24 * time.Hour, 7, 0},
		{"some are left", 2, Loss{at, 7}, 59 * time.Minute, 0, 5},
		{"some are left for an hour", 2, Loss{at, 7}, time.Hour, 0, 0},
	} {
		all, some := Lost(at.Add(c.after), fixed{status: Status{Services: c.services, Loss: c.loss}}, fixed{status: Status{Services: 3}})
		if all != c.all || some != c.some {
			t.Errorf("%s: %d services are lost without a rest, and %d with one; want %d and %d", c.name, all, some, c.all, c.some)
		}
	}
}
