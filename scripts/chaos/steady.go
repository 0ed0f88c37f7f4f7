package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strings"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/registry"
)

// The steady services exist throughout. Their endpoints change all the time, but there is always one
// among them that lives: so no client of theirs may ever fail, whatever happens to etcd.
type steady struct {
	name     registry.Name
	protocol registry.Protocol
	port     uint16
	alive    []string // backends, each known by its address
	dead     []string // addresses where nobody answers
	now      []string // what the registry says; guarded by the writer's Gate
}

// steadyNamespace keeps them apart from what the writer invents, and its deletions from them.
const steadyNamespace = "steady"

// firstSteadyPort is above every port that the writer's services may claim.
const firstSteadyPort = 30001

// How many there are, and how many backends each has.
const (
	steadyTCP = 6
	steadyUDP = 2
	alivePool = 4
	deadPool  = 2
)

// Three parties share the loopback: etcd has 127.0.0.1; the node has an address where any service may claim
// any port without meeting anybody else's; and so have the backends. Each experiment has its own.
var (
	nodeAddress    = loopback(1)
	backendAddress = loopback(65)
)

func loopback(first int) netip.Addr {
	pid := os.Getpid()
	return netip.AddrFrom4([4]byte{127, byte(first + pid>>16&63), byte(pid >> 8), byte(pid)})
}

// newSteady finds addresses that are dead, and starts the backends.
func newSteady(b *backends) ([]*steady, error) {
	var all []*steady
	for i := range steadyTCP + steadyUDP {
		s := &steady{
			name:     registry.Name{Namespace: steadyNamespace, Name: fmt.Sprintf("s%d", i)},
			protocol: registry.TCP,
			port:     uint16(firstSteadyPort + i),
		}
		serve := b.serveTCP
		if i >= steadyTCP {
			s.protocol, serve = registry.UDP, b.serveUDP
		}
		for range alivePool {
			addr, err := serve()
			if err != nil {
				return nil, err
			}
			s.alive = append(s.alive, addr)
		}
		for j := range deadPool { // below the range of the kernel's choices, so that nobody gets them
			s.dead = append(s.dead, netip.AddrPortFrom(backendAddress, uint16(1100+i*deadPool+j)).String())
		}
		s.now = s.alive
		all = append(all, s)
	}
	return all, nil
}

// addr is where clients find it.
func (s *steady) addr() string { return netip.AddrPortFrom(nodeAddress, s.port).String() }

// spec is the op that says that the service exists.
func (s *steady) spec() truth.Op {
	return truth.Op{Key: registry.SpecsPrefix + s.name.Namespace + "/" + s.name.Name, Value: fmt.Sprintf(
		`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"protocol":%q}`, s.name.Name, s.port, strings.ToUpper(s.protocol.String()))}
}

// endpoints is the op that says where it is now.
func (s *steady) endpoints() truth.Op {
	quoted := make([]string, len(s.now))
	for i, addr := range s.now {
		quoted[i] = fmt.Sprintf("%q", addr)
	}
	return truth.Op{Key: registry.EndpointsPrefix + s.name.Namespace + "/" + s.name.Name, Value: fmt.Sprintf(
		`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":[%s]}`, s.name.Name, strings.Join(quoted, ","))}
}

// move chooses other endpoints: some that live, and now and then some that do not.
func (s *steady) move(r *rand.Rand) truth.Op {
	s.now = nil
	for _, i := range r.Perm(len(s.alive))[:1+r.IntN(len(s.alive))] {
		s.now = append(s.now, s.alive[i])
	}
	for _, addr := range s.dead {
		if r.IntN(4) == 0 {
			s.now = slices.Insert(s.now, r.IntN(len(s.now)+1), addr)
		}
	}
	return s.endpoints()
}
