package balance

import (
	"cmp"
	"slices"
	"sync"

	"kubeproxy/proxy/balance/health"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/registry"
)

// A LoadBalancerRR knows the endpoints of every port of every service, and gives them out: in turn, unless the service wants
// another algorithm. It belongs to one Proxier, which gives it the endpoints of each batch. It is no handler itself.
type LoadBalancerRR struct {
	*rotation.Rules // of all rotations; set before the first batch

	mu       sync.Mutex                             // guards the fields below
	services map[registry.Name][]*rotation.Rotation // those of a service by the names of their ports: most often one
	untold   map[registry.Name]struct{}             // have a rotation that knows no terms yet: see SetServices
	released []*rotation.Rotation                   // by services that have left a port, until LetGo: clients may wait for their endpoints
	leaving  []*rotation.Rotation                   // have lost all their endpoints, and still offer them until LetGo

	overrides overrides
}

// NewLoadBalancerRR returns a balancer without endpoints. With randomStart each rotation begins at
// an endpoint of its own choice, so that a fleet of nodes does not herd on the first endpoint of
// every record; without it a rotation begins at the first, as in v0.4.
func NewLoadBalancerRR(randomStart bool) *LoadBalancerRR {
	return &LoadBalancerRR{Rules: rotation.NewRules(randomStart), services: make(map[registry.Name][]*rotation.Rotation), untold: make(map[registry.Name]struct{}), overrides: newOverrides()}
}

// SetEndpoints applies changes of endpoints records; nil is a record that is gone. The Proxier calls it before it opens
// the ports of the same batch, and LetGo after that: a rotation that loses all its endpoints offers them until then.
// Otherwise a service that goes together with its endpoints would, for a moment, own its port with nothing behind it,
// and turn away a client of the service that takes the port over.
//
// The lock is held for one record at a time, so that Status does not wait for a whole batch.
func (lb *LoadBalancerRR) SetEndpoints(changed map[registry.Name]*registry.Endpoints) {
	for name, endpoints := range changed {
		if endpoints == nil {
			endpoints = &registry.Endpoints{} // they are gone, and so all rotations are empty
		}
		lb.update(name, endpoints)
	}
}

// update applies the endpoints of one record.
func (lb *LoadBalancerRR) update(name registry.Name, endpoints *registry.Endpoints) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, r := range lb.services[name] {
		if endpoints.Of(r.Key.Port).Len() == 0 {
			lb.leaving = append(lb.leaving, r)
		}
	}
	lb.vanishLocked(name, endpoints)
	overrides := lb.overrides.weights(name)
	for _, p := range endpoints.ByPort {
		lb.rotationLocked(registry.PortKey{Name: name, Port: p.Port}).ReplaceOverriding(p, endpoints.Weights, overrides)
	}
}

// SetServices has the endpoints of the services that changed follow their terms; nil is a service that is gone. Of all, it also tells
// those whose ports have a new rotation since: the service has the port now that it waited for, or its first endpoints.
func (lb *LoadBalancerRR) SetServices(changed, all map[registry.Name]*registry.Service) {
	for name, service := range changed {
		lb.setService(name, service)
	}
	for name := range lb.untold {
		lb.setService(name, all[name])
	}
}

// setService has the endpoints of a service follow its terms, for the clients of its ports; nil is a service that is gone.
func (lb *LoadBalancerRR) setService(name registry.Name, service *registry.Service) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	delete(lb.untold, name)
	rotations := lb.services[name]
	clients, terms := make([]health.Clients, len(rotations)), registry.NoTerms
	if service != nil {
		terms = service.Terms()
		for _, p := range service.Ports {
			if at, ok := lb.findLocked(registry.PortKey{Name: name, Port: p.Name}); ok {
				clients[at] |= health.ClientsOf(p.Protocol, service.TermsOf(&p).Local)
			}
		}
	}
	for i, r := range rotations {
		r.SetTerms(terms, clients[i])
	}
}

// Rotations counts the rotations that there are: one for each port of a service that is held, or has endpoints.
func (lb *LoadBalancerRR) Rotations() (n int) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	for _, byPort := range lb.services {
		n += len(byPort)
	}
	return n
}

// LetGo empties the rotations that SetEndpoints left without endpoints, and has clients look again that wait for an endpoint of a service which has left its
// port: it may be another's by now.
func (lb *LoadBalancerRR) LetGo() {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	lb.letGoLocked()
}

func (lb *LoadBalancerRR) letGoLocked() {
	for _, r := range slices.Backward(lb.leaving) { // those of a service are in order: the last one goes without another that moves up
		r.Replace(registry.PortAddrs{}, "")
		lb.forgetUnusedLocked(r)
	}
	for _, r := range lb.released {
		r.TellNews()
	}
	lb.leaving, lb.released = nil, nil
}

// Hold returns the rotation of one port, which may be empty, and keeps it the same value for every
// caller until [LoadBalancerRR.Release] has been called as often: endpoints come and go inside it.
func (lb *LoadBalancerRR) Hold(key registry.PortKey) *rotation.Rotation {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	r := lb.rotationLocked(key)
	r.Holders++
	return r
}

// Release gives back what Hold gave out. A rotation without holders and without endpoints is
// forgotten, so that memory follows what the registry holds now.
func (lb *LoadBalancerRR) Release(r *rotation.Rotation) {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	r.Holders--
	lb.released = append(lb.released, r) // also one that no client waits for: one may begin to before LetGo
	lb.forgetUnusedLocked(r)
}

func (lb *LoadBalancerRR) rotationLocked(key registry.PortKey) *rotation.Rotation {
	at, ok := lb.findLocked(key)
	if ok {
		return lb.services[key.Name][at]
	}
	r := rotation.New(lb.Rules, key)
	lb.services[key.Name] = slices.Insert(lb.services[key.Name], at, r)
	lb.untold[key.Name] = struct{}{}
	return r
}

// findLocked returns the index of a rotation among those of its service, or where it would be inserted.
func (lb *LoadBalancerRR) findLocked(key registry.PortKey) (at int, ok bool) {
	return slices.BinarySearchFunc(lb.services[key.Name], key.Port, func(r *rotation.Rotation, port string) int { return cmp.Compare(r.Key.Port, port) })
}

func (lb *LoadBalancerRR) forgetUnusedLocked(r *rotation.Rotation) {
	if r.Holders > 0 || !r.IsEmpty() {
		return
	}
	r.Forget()
	rotations := lb.services[r.Key.Name]
	switch at, ok := lb.findLocked(r.Key); {
	case !ok || rotations[at] != r: // it is forgotten already
	case len(rotations) == 1:
		delete(lb.services, r.Key.Name)
	default:
		lb.services[r.Key.Name] = slices.Delete(rotations, at, at+1)
	}
}

// find returns the rotation of a port; nil if there is none.
func (lb *LoadBalancerRR) find(key registry.PortKey) *rotation.Rotation {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	if at, ok := lb.findLocked(key); ok {
		return lb.services[key.Name][at]
	}
	return nil
}

// list returns all rotations, in no order. A change waits for no more than this.
func (lb *LoadBalancerRR) list() []*rotation.Rotation {
	lb.mu.Lock()
	defer lb.mu.Unlock()
	all := make([]*rotation.Rotation, 0, len(lb.services))
	for _, rotations := range lb.services {
		all = append(all, rotations...)
	}
	return all
}
