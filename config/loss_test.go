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
