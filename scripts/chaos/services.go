package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"kubeproxy/config/etcdsource/truth"
	"kubeproxy/registry"
)

// A service exists throughout the run.
type service struct {
	name     registry.Name
	protocol registry.Protocol
	port     uint16
	alive    []string // addresses of backends
	dead     []string // addresses without a backend
	now      []string // its endpoints in the registry; guarded by the writer's Gate
}

// namespace separates them from the services that the writer makes and deletes.
const namespace = "steady"

// firstPort is above every port that the writer's services may claim.
const firstPort = 30001

// How many there are, and how many backends each has.
const (
	tcpServices = 6
	udpServices = 2
	alivePool   = 4
	deadPool    = 2
)

// newServices makes the services, and starts their backends.
func newServices(b *backends) ([]*service, error) {
	var all []*service
	for i := range tcpServices + udpServices {
		s := &service{
			name:     registry.Name{Namespace: namespace, Name: fmt.Sprintf("s%d", i)},
			protocol: registry.TCP,
			port:     uint16(firstPort + i),
		}
		serve := b.serveTCP
		if i >= tcpServices {
			s.protocol, serve = registry.UDP, b.serveUDP
		}
		for range alivePool {
			addr, err := serve()
			if err != nil {
				return nil, err
			}
			s.alive = append(s.alive, addr)
		}
		for j := range deadPool { // below the range of local ports, so the kernel assigns none of them
			s.dead = append(s.dead, netip.AddrPortFrom(backendAddress, uint16(1100+i*deadPool+j)).String())
		}
		s.now = s.alive
		all = append(all, s)
	}
	return all, nil
}

// addr is the address that clients connect to.
func (s *service) addr() string { return netip.AddrPortFrom(nodeAddress, s.port).String() }

// Create returns the writes that make the service, with its endpoints.
func (s *service) Create() []truth.Op { return []truth.Op{s.spec(), s.endpoints()} }

func (s *service) spec() truth.Op {
	return truth.Op{Key: registry.SpecsPrefix + s.name.Namespace + "/" + s.name.Name, Value: fmt.Sprintf(
		`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"protocol":%q}`, s.name.Name, s.port, strings.ToUpper(s.protocol.String()))}
}

func (s *service) endpoints() truth.Op {
	quoted := make([]string, len(s.now))
	for i, addr := range s.now {
		quoted[i] = fmt.Sprintf("%q", addr)
	}
	return truth.Op{Key: registry.EndpointsPrefix + s.name.Namespace + "/" + s.name.Name, Value: fmt.Sprintf(
		`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":[%s]}`, s.name.Name, strings.Join(quoted, ","))}
}

// Move chooses other endpoints, among them at least one backend, and returns the write.
func (s *service) Move(r *rand.Rand) truth.Op {
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
