package tcp

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/admit"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/engine"
	"kubeproxy/proxy/enginetest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A course is a race under way, as a script has it. Each line of a script is a moment, in ms, what happens then, and the steps that follow:
//
//	250 → dial 2            the time of Await has come: lines without an event come just then, and none is missing
//	300 2 refuses → dial 3  the dial of 10.0.0.2 has failed
//
// What can happen: "2 refuses", "2 answers", "2 lacks descriptors", "db is 6 7" (the addresses of the name, whether it is being looked up or
// not), "db fails", "endpoints are 2 3", "room" and "no room" for attempts, "descriptors 3" to be had, "abandoned".
type course struct {
	t       *testing.T
	race    Race
	config  RaceConfig
	all     *rotation.Rotation
	start   time.Duration
	zone    map[string][]netip.Addr
	dials   map[int]uint32    // under way
	lookUps map[string]uint32 // likewise
	dialled map[int]bool      // ever
	taken   int               // descriptors that others have
	full    bool              // there is no room for attempts
	news    context.Context   // that the race waits for; nil: none
}

// begin begins a race among endpoints: numbers of addresses, names, or "self".
func begin(t *testing.T, endpoints string, limits engine.Config, wait time.Duration) *course {
	t.Helper()
	time.Sleep(-monotonic.Now() + time.Second) // a bubble begins in the year 2000, before that clock does
	own := admit.NewOwnPorts(proxytest.Loopback)
	own.Add(enginetest.TCPPort(80))
	limits = limits.WithDefaults()
	c := &course{t: t, all: enginetest.NewRotation(addrs(endpoints)...), start: monotonic.Now(),
		zone: make(map[string][]netip.Addr), dials: make(map[int]uint32), lookUps: make(map[string]uint32), dialled: make(map[int]bool)}
	c.config = RaceConfig{Limits: &limits, Resolver: admit.NewResolver(own), MayAttempt: func() bool { return !c.full }}
	c.config.Resolver.Budget = admit.NewBudget(300)
	t.Cleanup(c.config.Resolver.Close)
	c.config.Resolver.Lookup = func(_ context.Context, _, name string) ([]netip.Addr, error) {
		if ips, ok := c.zone[name]; ok {
			return ips, nil
		}
		return nil, errors.New("no nameserver answers")
	}
	choice := c.all.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil)
	choice.Wait = wait
	c.race.Begin(&c.config, choice, c.start)
	return c
}

func addrs(endpoints string) (all []registry.Addr) {
	for name := range strings.FieldsSeq(endpoints) {
		switch n, err := strconv.Atoi(name); {
		case name == "self":
			all = append(all, proxytest.At(proxytest.On(80)))
		case err != nil:
			all = append(all, enginetest.Named(name, 80))
		default:
			all = append(all, enginetest.Address(n))
		}
	}
	return all
}

// nameOf is what scripts call an endpoint.
func nameOf(e *rotation.Endpoint) string {
	switch {
	case e.Addr.Host != "":
		return e.Addr.Host
	case e.Addr.IP.Addr().IsLoopback():
		return "self"
	}
	return strconv.Itoa(enginetest.NumberOf(e))
}

// happens reports an event to the race. It returns how the race has ended by that, if it has.
func (c *course) happens(event string) (end string) {
	who, what, _ := strings.Cut(event, " ")
	failures := map[string]error{"refuses": syscall.ECONNREFUSED, "lacks descriptors": syscall.EMFILE}
	switch ips, isAnswer := strings.CutPrefix(what, "is "); {
	case event == "":
	case who == "endpoints":
		c.all.Replace(registry.PortAddrs{Addrs: registry.NewAddrs(addrs(strings.TrimPrefix(what, "are"))...)}, "")
		if c.news != nil && c.news.Err() == nil {
			c.t.Errorf("%q: that is no news to the race", event)
		}
	case event == "room", event == "no room":
		c.full = event == "no room"
	case event == "abandoned":
		c.race.Abandon()
		return "abandoned"
	case who == "descriptors":
		n, _ := strconv.Atoi(what)
		budget := c.config.Resolver.Budget
		more := budget.Clients - budget.Last() - int(budget.Used.Load()) - n // beside those for new clients
		if more < 0 {
			budget.Release(-more)
		} else if !budget.Take(more) {
			c.t.Fatalf("%q: there are not so many", event)
		}
		c.taken += more
	case failures[what] != nil:
		c.race.Failed(monotonic.Now(), c.ended(who), failures[what])
	case what == "answers":
		won := c.race.Connected(monotonic.Now(), c.ended(who))
		won.Given()
		return "won by " + nameOf(won)
	case isAnswer:
		c.zone[who] = nil
		for _, a := range addrs(ips) {
			c.zone[who] = append(c.zone[who], a.IP.Addr())
		}
		c.lookedUp(who)
	case what == "fails":
		delete(c.zone, who)
		c.lookedUp(who)
	default:
		c.t.Fatalf("an event that is none: %q", event)
	}
	return ""
}

// ended returns the dial of an address, which has ended.
func (c *course) ended(number string) uint32 {
	n, _ := strconv.Atoi(number)
	id, ok := c.dials[n]
	if !ok {
		c.t.Fatalf("%s is not being dialled", number)
	}
	delete(c.dials, n)
	return id
}

// lookedUp looks a name up, and reports what came of that, if the race waits for it.
func (c *course) lookedUp(name string) {
	list, err := c.config.Resolver.Resolve(c.t.Context(), registry.TCP, enginetest.Named(name, 80))
	id, ok := c.lookUps[name]
	delete(c.lookUps, name)
	switch {
	case !ok:
	case err != nil:
		c.race.Failed(monotonic.Now(), id, err)
	default:
		c.race.Resolved(monotonic.Now(), id, list)
	}
}

// steps takes the steps that are due, and says which they are, and when the next one is.
func (c *course) steps() (said []string, due time.Duration) {
	for {
		switch step := c.race.Next(monotonic.Now()); step.Do {
		case Dial:
			ip := step.To.Addr().As4()
			n := int(ip[3])
			if c.dialled[n] {
				c.t.Errorf("%d is dialled once more", n)
			}
			c.dials[n], c.dialled[n] = step.ID, true
			said = append(said, fmt.Sprint("dial ", n))
		case LookUp:
			c.lookUps[nameOf(step.Of)] = step.ID
			said = append(said, "look up "+nameOf(step.Of))
		case Stop:
			for n, id := range c.dials {
				if id == step.ID {
					delete(c.dials, n)
					said = append(said, fmt.Sprint("stop ", n))
				}
			}
		case Await:
			c.pays(max(0, len(c.dials)+len(c.lookUps)-1))
			if step.At <= monotonic.Now() {
				c.t.Errorf("the race waits for what has passed %v ago", monotonic.Now()-step.At)
			}
			c.news = step.News
			return said, step.At
		case Postpone:
			return append(said, "postponed"), monotonic.Never
		case GiveUp:
			return append(said, "gives up"), monotonic.Never
		}
	}
}

// pays holds the race to the descriptors that it should have.
func (c *course) pays(want int) {
	if got := int(c.config.Resolver.Budget.Used.Load()) - c.taken; got != want {
		c.t.Errorf("the race has %d descriptors; want %d", got, want)
	}
}

// leavesNothing looks at what the race holds when it is over.
func (c *course) leavesNothing() {
	c.t.Helper()
	c.pays(0)
	for _, e := range c.all.Endpoints() {
		if e.BeginDial(1) != nil {
			c.t.Errorf("%s is still being dialled", nameOf(e))
		}
	}
}

// blames holds what the race says of the endpoints to what is expected.
func (c *course) blames(ejected, failed string) {
	c.t.Helper()
	var down, refused []string
	for _, e := range c.all.Endpoints() {
		if !e.Status().EjectedUntil.IsZero() {
			down = append(down, nameOf(e))
		}
	}
	for _, f := range c.race.Failures() {
		refused = append(refused, nameOf(f.Endpoint))
	}
	if got := strings.Join(down, " "); got != ejected {
		c.t.Errorf("ejected: %q; want %q", got, ejected)
	}
	if got := strings.Join(refused, " "); got != failed {
		c.t.Errorf("not given to the client: %q; want %q", got, failed)
	}
}

func TestHowARaceGoes(t *testing.T) {
	for _, c := range []struct {
		name      string
		endpoints string
		limits    engine.Config
		wait      time.Duration // for an endpoint
		script    []string
		ejected   string // in the end
		failed    string // the endpoints that the client was not given
	}{
		{name: "the first answers", endpoints: "1 2", script: []string{"0 → dial 1", "3 1 answers → won by 1"}},
		{name: "the next follows a refusal at once", endpoints: "1 2 3", script: []string{
			"0 → dial 1", "3 1 refuses → dial 2", "5 2 refuses → dial 3", "7 3 answers → won by 3"}, ejected: "1 2", failed: "1 2"},
		{name: "the next is dialled beside a silent one", endpoints: "1 2 3 4", script: []string{
			"0 → dial 1", "250 → dial 2", "500 → dial 3", "510 2 answers → won by 2"}, ejected: "1", failed: "1"},
		{name: "250 ms begin with the last attempt", endpoints: "1 2 3 4", script: []string{
			"0 → dial 1", "200 1 refuses → dial 2", "450 → dial 3", "460 3 refuses → dial 4", "470 2 answers → won by 2"},
			ejected: "1 3", failed: "1 3"},
		{name: "one that was silent may still win", endpoints: "1 2", script: []string{
			"0 → dial 1", "250 → dial 2", "500 →", "900 1 answers → won by 1"}, ejected: "2", failed: "2"},
		{name: "each attempt has its time, and all have theirs", endpoints: "1 2 3", limits: engine.Config{DialTimeout: time.Second}, script: []string{
			"0 → dial 1", "250 → dial 2", "500 → dial 3", "750 →", "1000 → stop 1", "1250 → stop 2", "1500 → stop 3, gives up"},
			ejected: "1 2 3", failed: "1 2 3"},
		{name: "silence that was cut short is not held against an endpoint", endpoints: "1 2",
			limits: engine.Config{DialTimeout: 9 * time.Second, DialTotalTimeout: 600 * time.Millisecond}, script: []string{
				"0 → dial 1", "250 → dial 2", "500 →", "600 → stop 1, stop 2, gives up"}, ejected: "1 2", failed: "1 2"},
		{name: "nor is silence of less than half the time", endpoints: "1 2",
			limits: engine.Config{DialTimeout: 9 * time.Second, DialTotalTimeout: 520 * time.Millisecond}, script: []string{
				"0 → dial 1", "250 1 refuses → dial 2", "500 →", "520 → stop 2, gives up"}, ejected: "1 2", failed: "1 2"},
		{name: "no attempt begins in too little time", endpoints: "1 2 3 4", limits: engine.Config{DialTotalTimeout: 850 * time.Millisecond}, script: []string{
			"0 → dial 1", "250 → dial 2", "500 → dial 3", "750 →", "850 → stop 1, stop 2, stop 3, gives up"}, ejected: "1 2", failed: "1 2 3"},
		{name: "none answers", endpoints: "1 2", script: []string{"0 → dial 1", "1 1 refuses → dial 2", "2 2 refuses → gives up"},
			ejected: "1 2", failed: "1 2"},
		{name: "no endpoints", script: []string{"0 → gives up"}},
		{name: "a client waits for an endpoint", wait: time.Second, script: []string{
			"0 →", "300 endpoints are 1 → dial 1", "301 1 answers → won by 1"}},
		{name: "it waits until its time is up", wait: time.Second, script: []string{"0 →", "1000 → gives up"}},
		{name: "what it finds has all its time", wait: time.Second, limits: engine.Config{DialTimeout: 2 * time.Second, DialTotalTimeout: 2 * time.Second}, script: []string{
			"0 →", "900 endpoints are 1 → dial 1", "1150 →", "2900 → stop 1, gives up"}, ejected: "1", failed: "1"},
		{name: "who was offered an endpoint does not wait for another", endpoints: "1", wait: time.Second, script: []string{
			"0 → dial 1", "1 1 refuses → gives up"}, ejected: "1", failed: "1"},
		{name: "an endpoint that is no use ends the wait", wait: time.Second, script: []string{"0 →", "300 endpoints are self → gives up"}, failed: "self"},
		{name: "our own shortage ends it, and nobody is to blame", endpoints: "1 2", script: []string{"0 → dial 1", "1 1 lacks descriptors → gives up"}, failed: "1"},
		{name: "our own listener is skipped", endpoints: "self 2", script: []string{"0 → dial 2", "1 2 answers → won by 2"}, failed: "self"},
		{name: "a client that goes blames nobody", endpoints: "1 2", script: []string{"0 → dial 1", "250 → dial 2", "400 abandoned → abandoned"}},

		{name: "without a descriptor nothing is dialled beside", endpoints: "1 2 3", script: []string{
			"0 → dial 1", "1 descriptors 1 →", "250 → dial 2", "500 →", "600 2 refuses → dial 3", "700 1 answers → won by 1"}, ejected: "2", failed: "2"},
		{name: "a failure makes room for the next", endpoints: "1 2", script: []string{
			"0 descriptors 0 → dial 1", "250 →", "300 1 refuses → dial 2", "310 2 answers → won by 2"}, ejected: "1", failed: "1"},
		{name: "without room for it an attempt is postponed, but not the first", endpoints: "1 2", script: []string{
			"0 no room → dial 1", "1 1 refuses → postponed", "9 room → dial 2", "10 2 answers → won by 2"}, ejected: "1", failed: "1"},

		{name: "a name is looked up", endpoints: "db", script: []string{"0 → look up db", "250 →", "600 db is 7 → dial 7", "601 7 answers → won by db"}},
		{name: "a look-up that takes longer than all dials may", endpoints: "db", limits: engine.Config{DialTimeout: time.Second, DialTotalTimeout: time.Second},
			script: []string{"0 → look up db", "250 →", "6000 db is 7 → dial 7", "7000 → stop 7, look up db", "7001 db is 7 → gives up"}, ejected: "db", failed: "db"},
		{name: "beside a look-up the next endpoint is dialled", endpoints: "db 2", script: []string{
			"0 → look up db", "250 → dial 2", "251 2 answers → won by 2"}},
		{name: "DNS fails", endpoints: "db", script: []string{"0 → look up db", "9 db fails → gives up"}, failed: "db"},
		{name: "the next address follows a refusal at once", endpoints: "db", script: []string{
			"0 → look up db", "9 db is 6 7 8 → dial 6", "10 6 refuses → dial 7", "20 7 refuses → dial 8", "30 8 answers → won by db"}},
		{name: "the next address is dialled beside a silent one", endpoints: "db", script: []string{
			"0 → look up db", "100 db is 6 7 8 → dial 6", "250 →", "350 → dial 7", "600 → dial 8", "700 7 answers → won by db"}},
		{name: "an address that refuses makes way for the next, beside one that is silent", endpoints: "db", script: []string{
			"0 → look up db", "100 db is 6 7 8 → dial 6", "250 →", "350 → dial 7", "360 6 refuses → dial 8", "370 8 answers → won by db"}},
		{name: "all addresses have the time of one attempt", endpoints: "db", limits: engine.Config{DialTimeout: time.Second}, script: []string{
			"0 → look up db", "0 db is 6 7 → dial 6", "250 → dial 7", "1000 → stop 6, stop 7, look up db", "1001 db is 6 7 → gives up"}, ejected: "db", failed: "db"},
		{name: "both the next address and the next endpoint are dialled beside a silent one", endpoints: "db 2 3", script: []string{
			"0 → look up db", "100 db is 6 7 → dial 6", "250 → dial 2", "350 → dial 7", "500 → dial 3", "501 7 answers → won by db"},
			ejected: "2", failed: "2"},
		{name: "without a descriptor no address is dialled beside", endpoints: "db", script: []string{
			"0 → look up db", "100 db is 6 7 → dial 6", "110 descriptors 0 →", "250 →", "350 →", "400 6 refuses → dial 7", "410 7 answers → won by db"}},
		{name: "without room for it an address is postponed, but not the first", endpoints: "db", script: []string{
			"0 no room → look up db", "1 db is 6 7 → dial 6", "2 6 refuses → postponed", "9 room → dial 7", "10 7 answers → won by db"}},
		{name: "a name whose answer is known is not looked up, and has what is left of the time", endpoints: "1 db",
			limits: engine.Config{DialTotalTimeout: 900 * time.Millisecond}, script: []string{
				"0 db is 6 7 → dial 1", "250 → dial 6", "500 → dial 7", "900 → stop 1, stop 6, stop 7, gives up"}, ejected: "1 db", failed: "1 db"},
		{name: "a name that stands for another address by now", endpoints: "db", script: []string{
			"0 → look up db", "1 db is 6 → dial 6", "250 →", "1100 6 refuses → look up db", "1110 db is 6 7 → dial 7", "1120 7 answers → won by db"}},
		{name: "a name is looked up once more, and no oftener", endpoints: "db", script: []string{
			"0 → look up db", "1 db is 6 → dial 6", "250 →", "1100 6 refuses → look up db", "1110 db is 7 → dial 7", "2500 7 refuses → gives up"},
			ejected: "db", failed: "db"},
		{name: "a name that cannot be looked up once more", endpoints: "db", script: []string{
			"0 → look up db", "1 db is 6 → dial 6", "250 →", "1100 6 refuses → look up db", "1110 db fails → gives up"}, ejected: "db", failed: "db"},
		{name: "addresses that are left when the time is over are not dialled", endpoints: "db", limits: engine.Config{DialTimeout: time.Second}, script: []string{
			"0 no room → look up db", "1 db is 6 7 → dial 6", "250 → postponed", "1500 room → stop 6, look up db", "1501 db is 6 7 → gives up"},
			ejected: "db", failed: "db"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				course := begin(t, c.endpoints, c.limits, c.wait)
				course.follow(c.script)
				course.leavesNothing()
				course.blames(c.ejected, c.failed)
			})
		})
	}
}

// follow has the race go as a script says.
func (c *course) follow(script []string) {
	c.t.Helper()
	due := c.start // when the race is to be asked again
	for _, line := range script {
		moment, want, _ := strings.Cut(line, "→")
		when, event, _ := strings.Cut(strings.TrimSpace(moment), " ")
		ms, err := strconv.Atoi(when)
		at := c.start + time.Duration(ms)*time.Millisecond
		if err != nil || event == "" && at != due || at > due {
			c.t.Fatalf("%q: the race is due after %v", line, due-c.start)
		}
		time.Sleep(at - monotonic.Now())
		var said []string
		if end := c.happens(event); end != "" {
			said, due = []string{end}, monotonic.Never
		} else {
			said, due = c.steps()
		}
		if got := strings.Join(said, ", "); got != strings.TrimSpace(want) {
			c.t.Fatalf("%q: got %s", line, got)
		}
	}
	if due != monotonic.Never {
		c.t.Fatalf("the script ends, and the race is due after %v", due-c.start)
	}
}

// A place at an endpoint that others dial is free again soon, and nothing tells of it.
func TestAClientThatMayWaitOutlastsALimitOfDials(t *testing.T) {
	for _, wait := range []time.Duration{0, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			c := begin(t, "2", engine.Config{MaxDialsPerEndpoint: 1}, wait)
			e := c.all.Endpoints()[0]
			if err := e.BeginDial(1); err != nil { // another client's
				t.Fatal(err)
			}
			now := c.start
			step := c.race.Next(now)
			if wait == 0 {
				if step.Do != GiveUp {
					t.Errorf("step %+v; want none for a client that does not wait", step)
				}
				return
			}
			for range 3 {
				if step.Do != Await || step.At != now+engine.Stagger {
					t.Fatalf("step %+v; want another look after %v", step, engine.Stagger)
				}
				now = step.At
				step = c.race.Next(now)
			}
			e.Given()
			if step = c.race.Next(step.At); step.Do != Dial || len(c.race.search.failed) != 0 {
				t.Errorf("step %+v, failures %v; want a dial", step, c.race.search.failed)
			}
		})
	}
}

// No news tells that an ejection is over, and perhaps no other client comes who would find out.
func TestAClientThatWaitsTriesAnEjectedEndpointOnceItIsDueBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, "1", engine.Config{}, 0)
		terms := &registry.Terms{HolderKey: "/leader", Timeouts: registry.Timeouts{Wait: 10 * time.Second}}
		c.race.Begin(&c.config, c.all.ChooseFor(registry.TCP, netip.Addr{}, terms, nil), c.start)
		c.steps()
		for _, ejection := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
			c.happens("1 refuses")
			_, due := c.steps()
			if due != monotonic.Now()+ejection {
				t.Fatalf("the client looks again after %v; want %v, when the endpoint is due back", due-monotonic.Now(), ejection)
			}
			time.Sleep(due - monotonic.Now())
			delete(c.dialled, 1)
			if said, _ := c.steps(); !slices.Equal(said, []string{"dial 1"}) {
				t.Fatalf("the endpoint is due back, and the race says %v", said)
			}
		}
		if end := c.happens("1 answers"); end != "won by 1" {
			t.Error(end)
		}
		c.leavesNothing()
	})
}

// Who waits and lacks descriptors asks again after a while: an engine that was told to dial at once would do nothing else.
func TestAClientThatWaitsDoesNotDialAllTheTimeWhileDescriptorsAreLacking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, "1", engine.Config{}, 0)
		terms := &registry.Terms{HolderKey: "/leader", Timeouts: registry.Timeouts{Wait: 10 * time.Second}}
		c.race.Begin(&c.config, c.all.ChooseFor(registry.TCP, netip.Addr{}, terms, nil), c.start)
		c.steps()
		for range 3 {
			c.happens("1 lacks descriptors")
			delete(c.dialled, 1)
			said, due := c.steps()
			if len(said) != 0 || due != monotonic.Now()+engine.Stagger {
				t.Fatalf("the race says %v, and looks again after %v; want nothing, and %v", said, due-monotonic.Now(), engine.Stagger)
			}
			time.Sleep(engine.Stagger)
			if said, _ = c.steps(); !slices.Equal(said, []string{"dial 1"}) {
				t.Fatalf("after %v the race says %v; want a dial", engine.Stagger, said)
			}
		}
		c.happens("1 answers")
		c.leavesNothing()
	})
}

// A dial may succeed, or fail, just when the race stops it: the engine learns of both.
func TestADialThatTheRaceHasStoppedDoesNotWin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := begin(t, "1", engine.Config{DialTimeout: time.Second}, 0)
		c.steps()
		stopped := c.dials[1]
		time.Sleep(time.Second)
		if said, _ := c.steps(); !slices.Equal(said, []string{"stop 1", "gives up"}) {
			t.Errorf("after its time, the race says %v", said)
		}
		if e := c.race.Connected(monotonic.Now(), stopped); e != nil {
			t.Errorf("%s has won", nameOf(e))
		}
		c.race.Failed(monotonic.Now(), stopped, syscall.ECONNREFUSED)
		c.race.Resolved(monotonic.Now(), stopped, nil)
		c.leavesNothing()
		c.blames("1", "1")
	})
}

// Whatever happens in whatever order, no address is dialled twice, the descriptors are those of what is under way (see steps), and the race
// ends within its time.
func TestARaceKeepsItsPromisesWhateverHappens(t *testing.T) {
	const most = 5*time.Second + 2*admit.LookUpTimeout + 2*4*time.Second
	for seed := range uint64(300) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 0))
				c := begin(t, "1 db 2 self cache 3", engine.Config{}, 0)
				var story []string
				for end := ""; end == ""; {
					said, due := c.steps()
					story = append(story, said...)
					event := ""
					switch {
					case len(said) > 0 && said[len(said)-1] == "gives up":
						end = "gives up"
						continue
					case len(said) > 0 && said[len(said)-1] == "postponed":
						event = "room"
					case random.IntN(3) == 0:
						time.Sleep(min(due, monotonic.Now()+admit.LookUpTimeout) - monotonic.Now())
						for name := range c.lookUps {
							if due == monotonic.Never {
								event = name + " fails"
							}
						}
					default:
						event = c.any(random)
					}
					if end = c.happens(event); event != "" {
						story = append(story, event)
					}
				}
				if took := monotonic.Now() - c.start; took > most {
					t.Errorf("the race took %v", took)
				}
				c.leavesNothing()
				if t.Failed() {
					t.Log(strings.Join(story, "; "))
				}
			})
		})
	}
}

// any returns something that can happen now, or "".
func (c *course) any(random *rand.Rand) string {
	time.Sleep(time.Duration(random.IntN(100)) * time.Millisecond)
	var all []string
	for n := range 10 {
		if c.dials[n] != 0 {
			all = append(all, fmt.Sprint(n, []string{" refuses", " refuses", " answers", " lacks descriptors"}[random.IntN(4)]))
		}
	}
	for i, name := range []string{"db", "cache"} {
		if c.lookUps[name] != 0 {
			all = append(all, []string{fmt.Sprint(name, " is ", 4+3*i), fmt.Sprint(name, " is ", 4+3*i, 5+3*i, 6+3*i), name + " fails"}[random.IntN(3)])
		}
	}
	all = append(all, "no room", "room", "descriptors "+strconv.Itoa(random.IntN(3)))
	return all[random.IntN(len(all))]
}

// The loops run a race for each client in memory that the one before has left.
func TestARaceOfAnEndpointThatAnswersAllocatesNothing(t *testing.T) {
	limits := engine.Config{}.WithDefaults()
	cfg := &RaceConfig{Limits: &limits, Resolver: admit.NewResolver(admit.NewOwnPorts(proxytest.Loopback))}
	defer cfg.Resolver.Close()
	all, now := enginetest.NewRotation(enginetest.Address(1)), monotonic.Now()
	var r Race
	if n := testing.AllocsPerRun(100, func() {
		r.Begin(cfg, all.ChooseFor(registry.TCP, netip.Addr{}, registry.NoTerms, nil), now)
		step := r.Next(now)
		if r.Next(now).Do != Await {
			t.Fatal("the race does not wait")
		}
		won := r.Connected(now, step.ID)
		won.Given()
		won.Left(false)
		r.Reset()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
