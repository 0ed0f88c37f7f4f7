package check

import (
	"fmt"
	"maps"
	"slices"

	"kubeproxy/registry"
)

// shareOutHealthPorts marks the services whose healthCheckNodePort another one has, the first by name as at a node, and those whose port is also that
// of a TCP listener.
func (x *examination) shareOutHealthPorts() {
	asking := make(map[uint16][]*held)
	for _, s := range x.services {
		if port := s.Service.Terms().HealthCheckPort; port != 0 {
			asking[port] = append(asking[port], s)
		}
	}
	if len(asking) == 0 {
		return
	}
	listeners := make(map[uint16]list)
	for _, id := range slices.SortedFunc(maps.Keys(x.owners), registry.ListenerID.Compare) {
		if id.Protocol == registry.TCP && asking[id.Number] != nil && x.overlapsBind(id) {
			l := listeners[id.Number]
			l.add(func() string { return "a port of " + x.owners[id].Service.Name.String() })
			listeners[id.Number] = l
		}
	}
	for port, all := range asking {
		slices.SortFunc(all, func(a, b *held) int { return a.Service.Name.Compare(b.Service.Name) })
		for i, s := range all {
			say := func(why string) {
				s.verdict.find(Warning, HealthPortConflict, fmt.Sprintf("its healthCheckNodePort %d is "+why, port))
			}
			if i > 0 {
				say("that of " + all[0].Service.Name.String() + ", which comes first by name: its load balancers are told about that one")
			}
			if l := listeners[port]; l.count > 0 {
				say("also " + l.String() + ": a node opens only one of the two")
			}
			if x.Bind.IsUnspecified() && slices.Contains(x.Operators, port) { // else they may have it at another address
				say("one of the operators' ports: a node does not open it")
			}
		}
	}
}

// overlapsBind reports whether a listener is at the address of healthCheckNodePorts.
func (x *examination) overlapsBind(id registry.ListenerID) bool {
	return !id.Addr.IsValid() || x.Bind.IsUnspecified() || id.Addr == x.Bind
}
