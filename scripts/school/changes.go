package main

import (
	"fmt"
	"time"

	"kubeproxy/scripts/school/peer"
)

// The judges of records and their changes: stages 5, 6, 9 and 10.

func judgeChange(t *trial) {
	red, green := t.named("red"), t.named("green")
	still := t.service("still", red.Addr)
	t.start(0)
	t.answered(still.port, startLimit, "red")
	stays := t.connects(still.port)
	stop, noticed := make(chan struct{}), make(chan error, 1)
	go func() { noticed <- askUntil(stop, still.port) }()

	changing := t.service("changing", green.Addr)
	t.answered(changing.port, changeLimit, "green")
	changing.endpoints(red.Addr)
	t.answered(changing.port, changeLimit, "red")
	old := changing.port
	changing.port = t.port()
	changing.spec("TCP")
	t.answered(changing.port, changeLimit, "red")
	t.refused(old)
	changing.delete("specs")
	t.refused(changing.port)

	close(stop)
	t.do(peer.AskByHand(still.port), "clients of port %d ask all the time, while the other service changes", still.port)
	if err := <-noticed; err != nil {
		t.fail("answers by red, as before", "%v", err)
	}
	t.echoes(stays, 1000, peer.TalkByHand(still.port))
}

// askUntil asks again and again, and returns the first error.
func askUntil(stop <-chan struct{}, port int) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(pace):
		}
		if _, err := ask(port, patience); err != nil {
			return err
		}
	}
}

func judgeNothing(t *trial) {
	red := t.named("red")
	web := t.service("web", red.Addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	web.delete("endpoints")
	t.turnedAway(web.port, changeLimit)
	web.endpoints(red.Addr)
	t.answered(web.port, changeLimit, "red")
	web.endpoints()
	t.turnedAway(web.port, changeLimit)
	web.delete("specs")
	t.refused(web.port)
}

func judgeBadRecord(t *trial) {
	red, green := t.named("red"), t.named("green")
	good, spoilt := t.service("good", red.Addr), t.service("spoilt", green.Addr)
	for i, value := range []string{"", "null", "[]", "{", "17", "k8s\x00\x7f", `{"id":"x"}`, `{"id":"x","port":"80"}`, `{"id":"x","port":70000}`,
		`{"id":"x","port":-1}`, `{"id":"x","port":1.5}`} {
		t.put(fmt.Sprintf("specs/aa-bad-%d", i), value)
	}
	t.put("specs/zz-bad", `{"id":`) // v0.4 served nothing at all when the last record was bad
	t.put("endpoints/aa-bad", `{"id":"aa-bad","endpoints":"127.0.0.1:1"}`)
	t.put("endpoints/zz-bad", `nonsense`)
	t.start(0)
	t.answered(good.port, startLimit, "red")
	t.answered(spoilt.port, startLimit, "green")
	t.put("specs/spoilt", `{"id":"spoilt","po`)
	t.put("endpoints/spoilt", `nonsense`)
	t.settled(changeLimit, red, green)
	t.asks(spoilt.port, "green")
	t.asks(good.port, "red")
}

func judgeConflict(t *trial) {
	red, green := t.named("red"), t.named("green")
	first := t.service("mm-first", red.Addr)
	t.start(0)
	t.answered(first.port, startLimit, "red")
	for _, name := range []string{"aa-second", "zz-second"} { // a program that goes by the alphabet does not pass by luck
		second := &service{t, name, first.port}
		second.endpoints(green.Addr)
		second.spec("TCP")
	}
	t.settled(changeLimit, red, green)
	for range 10 {
		t.asks(first.port, "red")
	}
	first.delete("specs")
	t.answered(first.port, changeLimit, "green")
}
