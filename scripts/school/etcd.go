package main

import (
	"fmt"
	"time"

	"kubeproxy/scripts/school/peer"
	"kubeproxy/scripts/school/store"
)

// The judges of etcd: stages 16 to 18.

// outageLimit is from the return of etcd to the effect of a change.
const outageLimit = 20 * time.Second

func judgeGap(t *trial) {
	const most = 40
	server := t.records.(store.Server)
	red := t.named("red")
	web := t.service("web", red.Addr)
	late := make([]*service, most)
	for i := range late {
		late[i] = &service{t, fmt.Sprintf("late-%02d", i), t.port()}
		late[i].endpoints(red.Addr)
	}
	next := 0 // guarded by the gateway's lock
	at := address(t.port())
	g, err := store.NewGateway(server, at, most, func() error {
		s := late[next]
		next++
		return server.Put("specs/"+s.name, specOf(s.name, s.port, "TCP"))
	})
	t.must(err)
	t.atEnd(g.Close)
	t.say("your program reaches etcd at %s; whenever it has sent something there, a service appears before etcd gets it", at)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	t.answered(t.service("after", red.Addr).port, changeLimit, "red") // it has heard of a change, so its watch stands
	for i := 0; ; i++ {                                               // while its services appear, the program may go on sending
		n, err := g.Interrupts(most)
		t.must(err)
		if i == n {
			break
		}
		t.answered(late[i].port, changeLimit, "red")
	}
}

func judgeSwap(t *trial) {
	red, green := t.named("red"), t.named("green")
	one, two := t.service("one", red.Addr), t.service("two", green.Addr)
	t.start(0)
	t.answered(one.port, startLimit, "red")
	t.answered(two.port, startLimit, "green")
	stop, noticed := make(chan struct{}), make(chan error, 2)
	for _, port := range []int{one.port, two.port} {
		go func() { noticed <- askUntil(stop, port) }()
	}
	for range 10 {
		t.swap(one, two)
		t.answered(one.port, changeLimit, "red")
		t.answered(two.port, changeLimit, "green")
	}
	close(stop)
	t.do(peer.AskByHand(one.port), "clients of both ports ask all the time, while the services swap them")
	for range 2 {
		if err := <-noticed; err != nil {
			t.fail("an answer for each client", "%v", err)
		}
	}
}

// swap has two services swap their ports in one transaction.
func (t *trial) swap(one, two *service) {
	etcd := t.records.(*store.Etcd)
	one.port, two.port = two.port, one.port
	var txn store.Transaction
	for _, s := range []*service{one, two} {
		txn.Put("specs/"+s.name, specOf(s.name, s.port, "TCP"))
	}
	t.do(etcd.TransactionByHand(txn), "service %s moves to port %d and service %s to %d, in one transaction", one.name, one.port, two.name, two.port)
	t.must(etcd.Transact(txn))
}

func judgeOutages(t *trial) {
	red, green := t.named("red"), t.named("green")
	web := t.service("web", red.Addr)
	t.start(0)
	t.answered(web.port, startLimit, "red")
	stays := t.connects(web.port)

	t.faults(store.Kill)
	for range 5 {
		t.asks(web.port, "red")
	}
	t.faults(store.Start)
	web.endpoints(green.Addr)
	t.answered(web.port, outageLimit, "green")

	t.faults(store.Pause)
	for range 5 {
		t.asks(web.port, "green")
	}
	t.faults(store.Resume)
	web.endpoints(red.Addr)
	t.answered(web.port, outageLimit, "red")

	t.faults(store.Kill, store.Wipe, store.Start)
	old := web.port
	web.port = t.port()
	web.endpoints(green.Addr)
	web.spec("TCP")
	t.answered(web.port, outageLimit, "green")
	t.refused(old)
	t.echoes(stays, 1000, peer.TalkByHand(web.port))
}

// faults has things happen to etcd.
func (t *trial) faults(all ...store.Fault) {
	server := t.records.(store.Server)
	for _, fault := range all {
		byHand := server.ByHand(fault)
		switch fault {
		case store.Kill:
			t.do(byHand, "etcd is killed")
			server.Kill()
		case store.Start:
			t.do(byHand, "etcd starts again")
			t.must(server.Start())
		case store.Pause:
			t.do(byHand, "etcd is paused: connections to it stay open, and nothing answers")
			server.Pause()
		case store.Resume:
			t.do(byHand, "etcd goes on")
			server.Resume()
		case store.Wipe:
			t.do(byHand, "the data of etcd are deleted: it will be empty, and its revisions will begin again")
			t.must(server.Wipe())
		}
	}
}
