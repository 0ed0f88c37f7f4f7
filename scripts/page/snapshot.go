//go:build js

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"time"

	"kubeproxy/config"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A shownWorld is what the page draws.
type shownWorld struct {
	Now     float64     `json:"now"` // milliseconds since the beginning
	Store   shownStore  `json:"store"`
	Nodes   []shownNode `json:"nodes"`
	Hosts   []shownHost `json:"hosts"`
	Clients []*client   `json:"clients"`
	Events  []event     `json:"events"`
}

type shownStore struct {
	State    string     `json:"state"`
	Revision int64      `json:"revision"`
	Keys     []shownKey `json:"keys"`
}

type shownKey struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Revision int64  `json:"revision"`
}

type shownHost struct {
	Name   string `json:"name"`
	Addr   string `json:"addr"`
	State  string `json:"state"`
	Served int    `json:"served"`
}

type shownNode struct {
	Name      string          `json:"name"`
	Addr      string          `json:"addr"`
	Connected bool            `json:"connected"` // to the registry
	Away      float64         `json:"away"`      // milliseconds since it is not
	Revision  int64           `json:"revision"`  // of what it serves
	Rejected  []shownProblem  `json:"rejected"`
	Warned    []shownProblem  `json:"warned"`
	Ports     []shownPort     `json:"ports"`
	Rotations []shownRotation `json:"rotations"`
	Sessions  []shownSession  `json:"sessions"`
}

type shownProblem struct {
	Key    string `json:"key"`
	Reason string `json:"reason"`
}

type shownPort struct {
	Protocol string   `json:"protocol"`
	Address  string   `json:"address"` // "" for the node
	Port     uint16   `json:"port"`
	Owner    string   `json:"owner"`
	Waiting  []string `json:"waiting"`
	Problem  string   `json:"problem"`
}

type shownRotation struct {
	Service   string          `json:"service"`
	Next      int             `json:"next"` // whose turn it is
	Endpoints []shownEndpoint `json:"endpoints"`
}

type shownEndpoint struct {
	Addr     string  `json:"addr"`
	Active   int64   `json:"active"`
	Clients  uint64  `json:"clients"`
	Failures uint64  `json:"failures"`
	Ejected  float64 `json:"ejected"` // milliseconds for which it still is
}

type shownSession struct {
	Protocol string  `json:"protocol"`
	Service  string  `json:"service"`
	Client   string  `json:"client"`
	Endpoint string  `json:"endpoint"` // "" while one is being looked for
	Age      float64 `json:"age"`
	Idle     float64 `json:"idle"`
}

// snapshot returns the state of the world as JSON, and the events since the last one.
func (w *world) snapshot() string {
	shown := shownWorld{Now: w.since(), Store: w.store.show()}
	for _, n := range w.nodes {
		shown.Nodes = append(shown.Nodes, n.show())
	}
	for _, h := range w.hosts {
		h.mu.Lock()
		shown.Hosts = append(shown.Hosts, shownHost{Name: h.name, Addr: h.addr.String(), State: h.state, Served: h.served})
		h.mu.Unlock()
	}
	w.mu.Lock()
	shown.Clients = []*client{}
	for _, c := range w.clients {
		shown.Clients = append(shown.Clients, c.show())
	}
	shown.Events, w.events = append([]event{}, w.events...), nil
	w.mu.Unlock()
	text, err := json.Marshal(shown)
	if err != nil {
		panic(err) // all of it is our own
	}
	return string(text)
}

func (s *store) show() shownStore {
	s.mu.Lock()
	defer s.mu.Unlock()
	shown := shownStore{State: "up", Revision: s.revision, Keys: []shownKey{}}
	if s.away {
		shown.State = "away"
	}
	for _, key := range slices.Sorted(maps.Keys(s.keys)) {
		shown.Keys = append(shown.Keys, shownKey{Key: key, Value: s.keys[key].value, Revision: s.keys[key].modified})
	}
	return shown
}

func (n *node) show() shownNode {
	status := n.source.Status()
	shown := shownNode{Name: n.name, Addr: n.addr.String(), Connected: status.Connected, Revision: status.Revision,
		Rejected: []shownProblem{}, Warned: []shownProblem{}, Ports: []shownPort{}, Rotations: []shownRotation{}, Sessions: []shownSession{}}
	if !status.Connected {
		shown.Away = milliseconds(time.Since(status.Since))
	}
	shown.problems(&status)
	for _, p := range n.proxier.Status() {
		port := shownPort{Protocol: p.ID.Protocol.String(), Address: p.ID.Address(), Port: p.ID.Number, Owner: p.Owner.String(), Waiting: []string{}}
		if p.Owner == (registry.PortKey{}) {
			port.Owner = ""
		}
		for _, key := range p.Waiting {
			port.Waiting = append(port.Waiting, key.String())
		}
		if p.Err != nil {
			port.Problem = config.OneLine(p.Err.Error())
		}
		shown.Ports = append(shown.Ports, port)
	}
	for r := range n.balancer.RotationStatus() {
		shown.Rotations = append(shown.Rotations, n.rotation(r.Service))
	}
	slices.SortFunc(shown.Rotations, func(a, b shownRotation) int { return cmp.Compare(a.Service, b.Service) })
	for some, err := range n.proxier.Clients(context.Background(), traffic.Selection{}, false) {
		if err != nil {
			break // the node ends
		}
		for _, c := range some {
			s := shownSession{Protocol: c.Listener.Protocol.String(), Service: c.Service.String(), Client: c.Client.String(), Age: milliseconds(c.Age), Idle: milliseconds(c.Idle)}
			if c.Endpoint != (registry.Addr{}) {
				s.Endpoint = c.Endpoint.String()
			}
			shown.Sessions = append(shown.Sessions, s)
		}
	}
	slices.SortFunc(shown.Sessions, func(a, b shownSession) int { return cmp.Compare(a.Client, b.Client) })
	return shown
}

// problems has what the decoder says of records.
func (n *shownNode) problems(status *config.Status) {
	for _, r := range status.Rejections {
		n.Rejected = append(n.Rejected, shownProblem{Key: r.Key, Reason: r.Reason})
	}
	for _, w := range status.Warnings {
		n.Warned = append(n.Warned, shownProblem{Key: w.Key, Reason: w.Text})
	}
}

// endpointsShown is how many endpoints of a rotation are shown at most.
const endpointsShown = 50

func (n *node) rotation(key registry.PortKey) shownRotation {
	first, _, next := n.balancer.EndpointsOf(key, endpointsShown)
	shown := shownRotation{Service: key.String(), Next: next, Endpoints: []shownEndpoint{}}
	for _, e := range first {
		end := shownEndpoint{Addr: e.Addr.String(), Active: e.Active, Clients: e.Connections, Failures: e.Failures}
		if !e.EjectedUntil.IsZero() {
			end.Ejected = max(0, milliseconds(time.Until(e.EjectedUntil)))
		}
		shown.Endpoints = append(shown.Endpoints, end)
	}
	return shown
}
