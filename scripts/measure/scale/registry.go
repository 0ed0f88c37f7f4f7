//go:build linux

package scale

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
)

// A size is a registry to measure with.
type size struct {
	name      string
	services  int
	endpoints int // of each
}

var allSizes = []size{{"10", 10, 10}, {"1000", 1000, 10}, {"10000", 10000, 10}, {"100x1000", 100, 1000}}

func sizeNames() []string {
	var names []string
	for _, s := range allSizes {
		names = append(names, s.name)
	}
	return names
}

// untouched is how many services are never changed: the first ones, which lead to echoes.
func (s size) untouched() int { return max(1, min(100, s.services/10)) }

// The ports of service i are firstPort+i and secondPort+i: one of the two at a time. They lie above the
// ports of operators, and below those of outgoing connections.
const (
	firstPort  = 11000
	secondPort = 21000
)

// A stock is an etcd full of services, and what is in it now.
type stock struct {
	size   size
	url    string
	client *clientv3.Client
	behind load.Ports // the echoes
	greets uint16     // the greeters: this port and the next
	states []state    // by service
	turn   int        // whose turn it is to be changed
}

// A state of a service: at which of its two ports it is, and who answers.
type state struct {
	busy   sync.Mutex // held from a change until it was seen served
	at, by int
}

// next gives the service that is to be changed now.
func (s *stock) next() int {
	first := s.size.untouched()
	i := first + s.turn%(s.size.services-first)
	s.turn++
	return i
}

func serviceName(i int) string { return fmt.Sprintf("service-%05d", i) }

func (s *stock) port(i int) uint16 {
	return [2]uint16{firstPort, secondPort}[s.states[i].at] + uint16(i)
}

func (s *stock) spec(i int) clientv3.Op {
	return clientv3.OpPut(registry.SpecsPrefix+serviceName(i), measure.ServiceRecord(serviceName(i), "TCP", s.port(i)))
}

// endpoints puts the endpoints of a service under a prefix. All of them are others when another greeter
// answers, so that one connection tells.
func (s *stock) endpoints(prefix string, i int) clientv3.Op {
	var addrs []netip.AddrPort
	if i < s.size.untouched() {
		addrs = load.BackendsAt(s.behind.Echo)
	} else {
		for j := range s.size.endpoints {
			addrs = append(addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(64 + j/250), byte(1 + j%250)}), s.greets+uint16(s.states[i].by)))
		}
	}
	return clientv3.OpPut(prefix+serviceName(i), measure.EndpointsRecord(serviceName(i), addrs))
}

// fill stores everything.
func (s *stock) fill(ctx context.Context) error {
	s.states = make([]state, s.size.services)
	most := 120 // operations in one transaction
	if s.size.endpoints > 100 {
		most = 20
	}
	var ops []clientv3.Op
	for i := range s.states {
		ops = append(ops, s.spec(i), s.endpoints(registry.EndpointsPrefix, i))
	}
	return measure.Store(ctx, s.client, most, ops...)
}

// put writes one key and gives its revision.
func (s *stock) put(ctx context.Context, op clientv3.Op) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, measure.PutTimeout)
	defer cancel()
	r, err := s.client.Do(ctx, op)
	if err != nil {
		return 0, fmt.Errorf("put: %w", err)
	}
	return r.Put().Header.Revision, nil
}

// unwatched is a prefix without a watch: what is written there costs etcd and us the same.
const unwatched = "/elsewhere/"
