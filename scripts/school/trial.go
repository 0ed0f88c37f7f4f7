package main

import (
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"kubeproxy/internal/process"
	"kubeproxy/scripts/school/peer"
	"kubeproxy/scripts/school/store"
)

// Limits of a judge. They are far longer than what is promised, so that a busy machine fails nobody: each is for something that a program
// does at once or never.
const (
	startLimit  = 15 * time.Second // from the start of the program to its first answer
	changeLimit = 8 * time.Second  // for a change of a record; the promise is a second
	patience    = 10 * time.Second // of one client
)

// Ports are below those that systems give to outgoing connections.
const lowPort, highPort = 20000, 32000

// A trial is one run of one stage. The judge runs in a goroutine of its own, and only this one may call what can end the trial.
type trial struct {
	records store.Store
	command []string // of the program, without the flags that it gets
	bind    string   // the address that the program is told to listen at
	exam    time.Duration
	seed    uint64 // of the exam
	began   time.Time
	program *program
	args    []string // that it was started with
	closers []func()

	mu       sync.Mutex // guards the fields below
	timeline []string
	change   string // the last one that the judge has made
	step     string
	byHand   string
	failure  *failure
}

// A failure says which promise a program did not keep.
type failure struct {
	at                           time.Duration
	step, expected, seen, byHand string
	change                       string
	broken                       bool // the school itself is at fault
}

// say writes a fact into the timeline.
func (t *trial) say(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sayLocked(fmt.Sprintf(format, args...))
}

func (t *trial) sayLocked(fact string) {
	t.timeline = append(t.timeline, fmt.Sprintf("%7.3f s  %s", time.Since(t.began).Seconds(), fact))
}

// do begins a step, which a verdict names. byHand is the command that repeats it.
func (t *trial) do(byHand, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.step, t.byHand = fmt.Sprintf(format, args...), byHand
	t.sayLocked(t.step)
}

// changes is do for a step that changes something: a verdict on what follows names it.
func (t *trial) changes(byHand, format string, args ...any) {
	t.do(byHand, format, args...)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.change = t.step
}

// fail ends the trial. expected and seen are parts of one sentence.
func (t *trial) fail(expected, seenFormat string, args ...any) {
	if t.program != nil {
		select {
		case <-t.program.Exited():
			seenFormat += fmt.Sprintf("; your program has ended (%v)", t.program.State())
		default:
		}
	}
	t.decide(&failure{expected: expected, seen: fmt.Sprintf(seenFormat, args...)})
	runtime.Goexit()
}

// must ends the trial if the school itself cannot go on.
func (t *trial) must(err error) {
	if err != nil {
		t.decide(&failure{expected: "the school to work", seen: err.Error(), broken: true})
		runtime.Goexit()
	}
}

// decide fails the trial, unless it has failed before.
func (t *trial) decide(f *failure) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.failure != nil {
		return
	}
	f.at, f.step, f.byHand, f.change = time.Since(t.began), t.step, t.byHand, t.change
	t.failure = f
	t.sayLocked("NOT AS PROMISED: " + f.seen)
}

// soon waits until try returns nil, and fails the trial when limit has passed or the program has ended.
func (t *trial) soon(limit time.Duration, expected string, try func() error) {
	clock := t.startClock()
	for attempts := 1; ; attempts++ {
		err := try()
		took := time.Since(clock.began).Round(time.Millisecond)
		if err == nil {
			t.say("  yes, after %v", took)
			return
		}
		if clock.passed() > limit || t.program != nil && t.program.Running() != nil {
			t.fail(expected, "%v, at each of %d attempts within %v", err, attempts, took)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// alive fails the trial if the program has ended.
func (t *trial) alive() {
	if err := t.program.Running(); err != nil {
		t.fail("a program that goes on", "none")
	}
}

// A clock counts the time that the program had. While the program waits for a processor, which others use, hardly any time passes.
type clock struct {
	began   time.Time
	program *program
	waited  time.Duration // of the program, when the clock began
}

func (t *trial) startClock() clock {
	c := clock{began: time.Now(), program: t.program}
	if c.program != nil {
		_, c.waited = used(c.program.PID())
	}
	return c
}

// passed returns the time that has passed: a fifth of the real time at least, so that a program with many threads has an end, too.
func (c *clock) passed() time.Duration {
	real, waited := time.Since(c.began), time.Duration(0)
	if c.program != nil {
		_, now := used(c.program.PID())
		waited = now - c.waited
	}
	return real - max(0, min(waited, real*4/5))
}

// port returns a free port.
func (t *trial) port() int {
	port, err := process.FreePorts(lowPort, highPort, 1)
	t.must(err)
	return int(port)
}

// atEnd has something closed when the trial is over.
func (t *trial) atEnd(closer func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closers = append(t.closers, closer)
}

// close ends the program and all else.
func (t *trial) close() {
	if t.program != nil {
		t.program.close()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, closer := range t.closers {
		closer()
	}
}

func itoa(n int) string { return strconv.Itoa(n) }

func address(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// A service is one that the judge writes the records of.
type service struct {
	t    *trial
	name string
	port int
}

// service writes the records of a new service over TCP at a free port, the endpoints first.
func (t *trial) service(name string, endpoints ...string) *service {
	s := &service{t, name, t.port()}
	s.endpoints(endpoints...)
	s.spec("TCP")
	return s
}

// datagramService is service for UDP.
func (t *trial) datagramService(name string, endpoints ...string) *service {
	s := &service{t, name, t.port()}
	s.endpoints(endpoints...)
	s.spec("UDP")
	return s
}

func (s *service) spec(protocol string) {
	s.t.put("specs/"+s.name, specOf(s.name, s.port, protocol))
}

func (s *service) endpoints(addrs ...string) {
	s.t.put("endpoints/"+s.name, endpointsOf(s.name, addrs...))
}

// delete deletes a record of the service: specs or endpoints.
func (s *service) delete(kind string) {
	s.t.changes(s.t.records.DeleteByHand(kind+"/"+s.name), "delete %s/%s", kind, s.name)
	s.t.must(s.t.records.Delete(kind + "/" + s.name))
}

// put writes a record.
func (t *trial) put(key, value string) {
	t.changes(t.records.PutByHand(key, value), "write %s: %s", key, shortened(value))
	t.must(t.records.Put(key, value))
}

func specOf(name string, port int, protocol string) string {
	return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"protocol":%q}`, name, port, protocol)
}

func endpointsOf(name string, addrs ...string) string {
	list := ""
	if len(addrs) > 0 {
		list = `"` + strings.Join(addrs, `","`) + `"`
	}
	return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":[%s]}`, name, list)
}

func shortened(text string) string {
	if len(text) > 140 {
		text = text[:140] + "…"
	}
	return text
}

// settled waits until the program has read all that was written before. A change of both records of a service of its own has to take effect,
// twice: the second one was written after a scan had begun that has seen the first, so this scan or the next has read everything.
func (t *trial) settled(limit time.Duration, one, other *peer.Endpoint) {
	s := &service{t, "zz-marker", 0}
	for _, marker := range []*peer.Endpoint{one, other} {
		s.port = t.port()
		s.endpoints(marker.Addr)
		s.spec("TCP")
		t.answered(s.port, limit, marker.Name)
	}
	s.delete("specs")
	t.refused(s.port)
}

// silentAddress returns the address of a listener that accepts nobody and whose queue is full: to a client it is a machine that has gone.
func (t *trial) silentAddress() string {
	port := t.port()
	end, err := peer.Silent(port)
	t.must(err)
	t.atEnd(end)
	t.say("nobody answers at %s, and nobody refuses", address(port))
	return address(port)
}

// endpoint starts an endpoint, which closes with the trial.
func (t *trial) endpoint(name string, serve func(conn *net.TCPConn)) *peer.Endpoint {
	e := peer.NewEndpoint(name, address(t.port()), serve)
	t.must(e.Open())
	t.atEnd(e.Close)
	t.say("endpoint %s answers at %s", name, e.Addr)
	return e
}

// named starts an endpoint that says its name and sends back whatever comes.
func (t *trial) named(name string) *peer.Endpoint { return t.endpoint(name, peer.Echo(name)) }

// refusing returns an address at which nobody listens.
func (t *trial) refusing() string {
	addr := address(t.port())
	t.say("nobody listens at %s", addr)
	return addr
}
