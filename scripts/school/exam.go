package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/scripts/school/peer"
	"kubeproxy/scripts/school/store"
)

// The exam: stage 19. The judge's goroutine writes records, and has endpoints and etcd fail, in an order that the seed decides. Clients ask
// all the while. What must hold at each moment:
//
//   - Each client of a port that stays is answered, whatever happens: each list of endpoints has one that works.
//   - It is answered by an endpoint of the service that has the port, by a list that was in force at some moment since everything had settled.
//   - Connections that stay go on, and a slow reader gets all in the end.
//
// And whenever everything has settled, each change has taken effect.

// A line is a port that stays, with what its clients may be answered by.
type line struct {
	port int

	mu    sync.Mutex // guards the fields below
	sets  [][]string // the names of the endpoints, one set for each change; the last one is in force
	first int        // the sets before this one cannot be in force any more
}

func (l *line) add(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sets = append(l.sets, names)
}

// last is the set in force.
func (l *line) last() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sets[len(l.sets)-1]
}

func (l *line) settle() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.first = len(l.sets) - 1
}

// isSettled reports whether the set in force has been in force everywhere.
func (l *line) isSettled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first == len(l.sets)-1
}

// begin is for a client that begins now. since then returns by whom it may have been answered.
func (l *line) begin() (first int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}

func (l *line) since(first int) (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, set := range l.sets[first:] {
		names = append(names, set...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// An exam is one run of it. Its clients are goroutines of their own; everything else is the judge's.
type exam struct {
	t      *trial
	random *rand.Rand
	steady []*peer.Endpoint // always work
	shaky  []*peer.Endpoint // come and go
	isShut map[*peer.Endpoint]bool
	silent string

	kept   []*kept // the first two swap their ports, and others want the port of the third
	udp    *kept
	guests []*guest
	serial int

	clients  sync.WaitGroup
	stop     chan struct{} // closed by leave
	over     sync.Once
	closings atomic.Int64 // of endpoints: odd while one closes
	served   atomic.Int64
	wrong    chan complaint // of clients; the first one counts
}

// A kept is a service whose port clients ask all the time.
type kept struct {
	*service
	*line
}

// A guest is a service that comes and goes. Nobody asks until it has settled.
type guest struct {
	*service
	names   []string // of its endpoints
	gone    bool
	settled bool
}

// A complaint is what a client has seen.
type complaint struct{ step, byHand, expected, seen string }

func judgeExam(t *trial) {
	x := &exam{t: t, random: rand.New(rand.NewPCG(t.seed, 0)), isShut: make(map[*peer.Endpoint]bool), stop: make(chan struct{}), wrong: make(chan complaint, 1)}
	t.say("the seed is %d", t.seed)
	for _, name := range []string{"red", "green", "blue"} {
		x.steady = append(x.steady, t.named(name))
	}
	for _, name := range []string{"shaky-1", "shaky-2"} {
		x.shaky = append(x.shaky, t.named(name))
	}
	x.silent = t.silentAddress()
	thief := t.named("thief")
	const size = 64 << 20
	block, left := peer.RandomBlock(), new(atomic.Int64)
	big := t.service("big", t.endpoint("big", peer.Download(block, size, left)).Addr)
	for i, name := range []string{"kept-1", "kept-2", "kept-3"} {
		e := x.steady[i]
		s := t.service(name, e.Addr)
		x.kept = append(x.kept, &kept{s, &line{port: s.port, sets: [][]string{{e.Name}}}})
	}
	s := t.datagramService("kept-udp", x.steady[0].Addr)
	x.udp = &kept{s, &line{port: s.port, sets: [][]string{{x.steady[0].Name}}}}

	t.start(512)
	for _, k := range x.kept {
		t.answered(k.line.port, startLimit, k.last()...)
	}
	t.served(x.udp.line.port, startLimit)
	rival := &service{t, "aa-rival", x.kept[2].line.port}
	rival.endpoints(thief.Addr)
	rival.spec("TCP")
	reader := t.startsReading(big.port)
	crowd := x.crowd(50)
	var stays []net.Conn
	for _, k := range x.kept {
		stays = append(stays, t.connects(k.line.port))
	}

	t.atEnd(x.leave)
	x.arrive(stays)
	for end := time.Now().Add(t.exam); time.Now().Before(end); {
		for range 1 + x.random.IntN(4) {
			x.act()
			x.listen()
		}
		x.settle()
	}
	x.leave()
	x.listen()
	t.say("%d clients and datagrams were answered", x.served.Load())

	for _, g := range x.guests {
		x.dismiss(g)
	}
	x.settle()
	for _, k := range x.kept {
		t.asks(k.line.port, k.last()...)
	}
	t.do(peer.AskByHand(big.port), "a client of port %d has not read for all this time, and reads now", big.port)
	t.readsAll(reader, block, size)
	closeAll(append(crowd, reader))
	closeAll(stays[1:])
	t.drains(x.kept[0].line.port, stays[0])
}

// crowd is clients that say nothing.
func (x *exam) crowd(n int) (conns []net.Conn) {
	port := x.kept[2].line.port
	x.t.do(peer.CrowdByHand(port, n), "%d clients of port %d connect and say nothing", n, port)
	for range n {
		conn, err := net.DialTimeout("tcp", address(port), patience)
		if err != nil {
			x.t.fail("a connection", "%v", peer.Plain(err))
		}
		x.t.atEnd(func() { conn.Close() })
		conns = append(conns, conn)
	}
	return conns
}

// arrive starts the clients.
func (x *exam) arrive(stays []net.Conn) {
	block := peer.RandomBlock()
	for i, k := range x.kept {
		seed := x.random.Uint64()
		x.clients.Go(func() { x.ask(k.line, block, rand.New(rand.NewPCG(seed, 1))) })
		x.clients.Go(func() { x.stay(k.line, stays[i]) })
	}
	for range 3 {
		conn := x.t.client(x.udp.line.port)
		x.clients.Go(func() { x.talk(x.udp.line, conn) })
	}
}

// leave ends the clients. It may be called twice.
func (x *exam) leave() {
	x.over.Do(func() { close(x.stop) })
	x.clients.Wait()
}

// listen fails the trial if a client has complained.
func (x *exam) listen() {
	select {
	case c := <-x.wrong:
		x.t.do(c.byHand, "%s", c.step)
		x.t.fail(c.expected, "%s", c.seen)
	default:
	}
}

// goesOn waits for the pause of a client, and reports whether it goes on.
func (x *exam) goesOn() bool {
	select {
	case <-x.stop:
		return false
	case <-time.After(4 * pace):
		return true
	}
}

func (x *exam) complain(c complaint) {
	select {
	case x.wrong <- c:
	default:
	}
}

// ask is clients that ask, half-close, and read to the end, one after the other.
func (x *exam) ask(l *line, block []byte, random *rand.Rand) {
	for x.goesOn() {
		first, closings := l.begin(), x.closings.Load()
		sends := block[:random.IntN(20_000)]
		answer, err := peer.Finish(address(l.port), sends, patience)
		name, echo, _ := bytes.Cut(answer, []byte("\n"))
		may := l.since(first)
		c := complaint{step: fmt.Sprintf("clients of port %d ask all the time", l.port), byHand: peer.AskByHand(l.port), expected: anyOf(may)}
		switch {
		case closings%2 != 0 || x.closings.Load() != closings: // an endpoint has closed, perhaps this client's
			continue
		case err != nil:
			c.seen = err.Error()
		case !slices.Contains(may, string(name)):
			c.seen = fmt.Sprintf("an answer by %q", name)
		case !bytes.Equal(echo, sends):
			c.expected, c.seen = fmt.Sprintf("the %d bytes that the client has sent", len(sends)), fmt.Sprintf("%d bytes", len(echo))
		default:
			x.served.Add(1)
			continue
		}
		x.complain(c)
		return
	}
}

// stay is a client that stays, and exchanges something all the time.
func (x *exam) stay(l *line, conn net.Conn) {
	data, got := make([]byte, 1000), make([]byte, 1000)
	for x.goesOn() {
		err := conn.SetDeadline(time.Now().Add(3 * patience))
		if err == nil {
			_, err = conn.Write(data)
		}
		for k := 0; err == nil && k < len(got); {
			var n int
			n, err = conn.Read(got[k:])
			k += n
		}
		if err != nil {
			x.complain(complaint{fmt.Sprintf("a client of port %d that has been connected from the beginning goes on", l.port), peer.TalkByHand(l.port), "1000 bytes back", peer.Plain(err).Error()})
			return
		}
		x.served.Add(1)
	}
}

// talk is a client over UDP.
func (x *exam) talk(l *line, conn net.Conn) {
	for x.goesOn() {
		first := l.begin()
		name, err := peer.Datagram(conn, "hello")
		may := l.since(first)
		switch {
		case err != nil:
			name = err.Error()
		case slices.Contains(may, name):
			x.served.Add(1)
			continue
		}
		x.complain(complaint{fmt.Sprintf("clients of port %d send datagrams all the time", l.port), peer.DatagramByHand(l.port, 5), anyOf(may), name})
		return
	}
}

// act does one thing.
func (x *exam) act() {
	acts := []func(){x.change, x.change, x.change, x.move, x.swap, x.swap, x.come, x.come, x.part, x.spoil, x.shake, x.shake, x.outage}
	acts[x.random.IntN(len(acts))]()
}

// some returns steady endpoints in any order, at least one.
func (x *exam) some() (names, addrs []string) {
	for _, i := range x.random.Perm(len(x.steady))[:1+x.random.IntN(len(x.steady))] {
		names, addrs = append(names, x.steady[i].Name), append(addrs, x.steady[i].Addr)
	}
	return names, addrs
}

// change gives a service that stays other endpoints: some that work, and others that may not.
func (x *exam) change() {
	k := x.kept[x.random.IntN(len(x.kept))]
	names, addrs := x.some()
	for _, e := range x.shaky {
		if x.random.IntN(2) == 0 {
			names, addrs = append(names, e.Name), append(addrs, e.Addr)
		}
	}
	if x.random.IntN(3) == 0 {
		addrs = append(addrs, x.silent, addrs[0])
	}
	x.random.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	k.add(names)
	k.endpoints(addrs...)
}

// move gives the UDP service other endpoints.
func (x *exam) move() {
	names, addrs := x.some()
	x.udp.add(names)
	x.udp.endpoints(addrs...)
}

// swap has the first two services swap their ports. A port keeps its clients, so it is the service that changes.
func (x *exam) swap() {
	if _, ok := x.t.records.(*store.Etcd); !ok {
		return // there are no transactions
	}
	one, two := x.kept[0], x.kept[1]
	a, b := one.last(), two.last()
	one.add(b)
	two.add(a)
	one.service, two.service = two.service, one.service
	x.t.swap(one.service, two.service)
}

// come has a service appear, with endpoints or without.
func (x *exam) come() {
	if len(x.guests) == 8 {
		x.part()
	}
	x.serial++
	g := &guest{service: &service{x.t, fmt.Sprintf("guest-%d", x.serial), x.t.port()}}
	var addrs []string
	if x.random.IntN(4) > 0 {
		g.names, addrs = x.some()
	}
	g.endpoints(addrs...)
	g.spec("TCP")
	x.guests = append(x.guests, g)
}

// part has a guest go.
func (x *exam) part() {
	if len(x.guests) > 0 {
		x.dismiss(x.guests[x.random.IntN(len(x.guests))])
	}
}

func (x *exam) dismiss(g *guest) {
	if !g.gone {
		g.gone, g.settled = true, false
		g.delete("specs")
		g.delete("endpoints")
	}
}

// spoil makes a record one that cannot be read: a new one, or one that has a good version.
func (x *exam) spoil() {
	bad := []string{"", "null", "{", "17", `{"port":-1,"endpoints":"x"}`, "k8s\x00\x7f"}[x.random.IntN(6)]
	keys := []string{"specs/aa-bad", "specs/zz-bad", "endpoints/aa-bad", "specs/" + x.kept[2].name}
	if x.kept[2].isSettled() { // else the program may never see the version that was written last, and keeps the one before
		keys = append(keys, "endpoints/"+x.kept[2].name)
	}
	x.t.put(keys[x.random.IntN(len(keys))], bad)
}

// shake has an endpoint close or come back.
func (x *exam) shake() {
	e := x.shaky[x.random.IntN(len(x.shaky))]
	if x.isShut[e] {
		x.t.say("endpoint %s answers again", e.Name)
		x.t.must(e.Open())
	} else {
		x.t.say("endpoint %s refuses, and resets its connections", e.Name)
		x.closings.Add(1)
		e.Close()
		x.closings.Add(1)
	}
	x.isShut[e] = !x.isShut[e]
}

// outage has etcd away for a second or less. Nothing is written meanwhile.
func (x *exam) outage() {
	faults := []store.Fault{store.Kill, store.Start}
	if x.random.IntN(2) == 0 {
		faults = []store.Fault{store.Pause, store.Resume}
	}
	x.t.faults(faults[0])
	time.Sleep(time.Duration(x.random.IntN(1000)) * time.Millisecond)
	x.t.faults(faults[1])
}

// settle waits until everything that was written has taken effect.
func (x *exam) settle() {
	x.t.settled(outageLimit, x.steady[0], x.steady[1])
	for _, g := range x.guests {
		switch {
		case g.settled:
		case g.gone:
			x.t.refused(g.port)
		case len(g.names) == 0:
			x.t.turnedAway(g.port, changeLimit)
		default:
			x.t.answered(g.port, changeLimit, g.names...)
		}
		g.settled = true
	}
	x.guests = slices.DeleteFunc(x.guests, func(g *guest) bool { return g.gone })
	for _, k := range append(slices.Clone(x.kept), x.udp) {
		k.settle()
	}
	x.listen()
}
