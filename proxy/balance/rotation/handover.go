package rotation

import (
	"iter"
	"slices"
	"time"

	"kubeproxy/internal/monotonic"
	"kubeproxy/proxy/balance/affinity"
	"kubeproxy/proxy/balance/checks"
	"kubeproxy/proxy/handover"
	"kubeproxy/proxy/removal"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What a rotation has learned from clients and checks passes to a successor: whose turn it is, which endpoints are ejected or fail, and
// which client was given which endpoint. A rotation that has had neither has learned nothing.

// affinitiesEach is how many clients one message names.
const affinitiesEach = 512

// Export yields what was learned. No client may begin to choose meanwhile.
func (r *Rotation) Export() iter.Seq[handover.Message] {
	return func(yield func(handover.Message) bool) {
		if len(r.set.Load().endpoints) == 0 || !yield(r.learned()) {
			return
		}
		for protocol := range r.clients {
			for of := range r.remembered(registry.Protocol(protocol)) {
				if !yield(of) {
					return
				}
			}
		}
	}
}

// learned is what the set knows, without clients.
func (r *Rotation) learned() *handover.Rotation {
	set, now := r.set.Load(), monotonic.Now()
	message := &handover.Rotation{Service: r.Key}
	var next []*Endpoint
	for e := range set.seenBy(0).inTurn() {
		if len(next) == MaxOffers {
			break
		}
		next, message.Next = append(next, e), append(message.Next, e.Addr)
	}
	for _, e := range set.endpoints {
		x := e.known.Load()
		if x == nil {
			continue
		}
		known := handover.Endpoint{Addr: e.Addr}
		for protocol := range registry.UDP + 1 {
			known.Health[protocol] = x.health[protocol].Export(now)
			check, _ := e.checkState(protocol)
			known.Checks[protocol] = check.Export()
		}
		if known != (handover.Endpoint{Addr: e.Addr}) {
			message.Endpoints = append(message.Endpoints, known)
		}
	}
	for protocol, question := range r.questions() {
		asked := &message.Asked[protocol]
		asked.Question = question
		for i, e := range next {
			if check, _ := e.checkState(registry.Protocol(protocol)); check.Passed() {
				asked.Passed |= 1 << i
			}
		}
	}
	return message
}

// questions are hashes of what the endpoints are asked, by Protocol; 0: nothing.
func (r *Rotation) questions() (hashes [2]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for protocol, c := range r.wantedChecks() {
		if c.on {
			hashes[protocol] = c.key.Question.Hash()
		}
	}
	return hashes
}

// remembered yields the clients that the rotation remembers, in their order.
func (r *Rotation) remembered(protocol registry.Protocol) iter.Seq[*handover.Affinities] {
	return func(yield func(*handover.Affinities) bool) {
		of := &handover.Affinities{Service: r.Key, Protocol: protocol}
		for known := range r.rules.affinities.All(&r.clients[protocol]) {
			of.Clients = append(of.Clients, handover.Affinity{Client: known.Addr, Endpoint: known.Endpoint.Addr, Age: known.Age, Timeout: known.Timeout})
			if len(of.Clients) == affinitiesEach {
				if !yield(of) {
					return
				}
				of.Clients = of.Clients[:0]
			}
		}
		if len(of.Clients) > 0 {
			yield(of)
		}
	}
}

// Adopt has the rotation go on where that of a predecessor was, as far as it has the same endpoints.
func (r *Rotation) Adopt(message *handover.Rotation) {
	set, now := r.awake(), monotonic.Now()
	at := make(map[registry.Addr]int, len(set.endpoints))
	for i, e := range set.endpoints {
		at[e.Addr] = i
	}
	var next []*Endpoint
	for _, addr := range message.Next {
		if i, ok := at[addr]; ok {
			next = append(next, set.endpoints[i])
		}
	}
	set.begin(func(kind) iter.Seq[*Endpoint] { return slices.Values(next) })
	for _, known := range message.Endpoints {
		i, ok := at[known.Addr]
		if !ok {
			continue
		}
		e := set.endpoints[i]
		for protocol := range known.Health {
			e.stats().health[protocol].Adopt(known.Health[protocol], now)
			e.follow(registry.Protocol(protocol))
		}
	}
	for protocol, question := range r.questions() {
		asked := &message.Asked[protocol]
		if question == 0 || asked.Question != question {
			continue // what it was not asked here says nothing
		}
		for i, addr := range message.Next {
			if at, ok := at[addr]; ok && asked.Passed&(1<<i) != 0 {
				set.endpoints[at].adoptCheck(registry.Protocol(protocol), checks.State{Known: true, Since: time.Now()})
			}
		}
		for _, known := range message.Endpoints {
			if at, ok := at[known.Addr]; ok && known.Checks[protocol].Known {
				set.endpoints[at].adoptCheck(registry.Protocol(protocol), checks.StateOf(&known.Checks[protocol]))
			}
		}
	}
}

// adoptCheck has checks of the endpoint go on from what a predecessor's have found.
func (e *Endpoint) adoptCheck(protocol registry.Protocol, s checks.State) {
	if t := e.stats().checks[protocol].Load(); t != nil {
		e.Rotation.rules.Checker.Adopt(t, s)
	}
}

// AdoptAffinities remembers clients of a predecessor whose endpoints are still there.
func (r *Rotation) AdoptAffinities(of *handover.Affinities) {
	at := make(map[registry.Addr]*Endpoint)
	for _, e := range r.Endpoints() {
		at[e.Addr] = e
	}
	for _, known := range of.Clients {
		if e := at[known.Endpoint]; e != nil {
			r.rules.affinities.Adopt(&r.clients[of.Protocol], affinity.Known[*Endpoint]{Addr: known.Client, Endpoint: e, Age: known.Age, Timeout: known.Timeout})
		}
	}
}

// Departed returns an endpoint of a predecessor's that left the rotation so long ago, which is when the time of its connections began.
func (r *Rotation) Departed(addr registry.Addr, then removal.Policy, ago time.Duration) *Endpoint {
	e := &Endpoint{Addr: addr, Rotation: r}
	x := e.stats()
	x.gone.Store(true)
	e.Lifetime().End(then, traffic.EndpointRemoved, ago)
	r.rules.departed.add(e)
	return e
}
