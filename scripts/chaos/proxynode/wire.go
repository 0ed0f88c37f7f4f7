package proxynode

import (
	"fmt"
	"time"

	"kubeproxy/registry"
)

// A wireReport is a Report as gob sends it. Package gob cannot look into the packed addresses of
// [registry.Endpoints], so these travel as text.
type wireReport struct {
	At        time.Time
	Update    *wireUpdate
	Settled   *int
	Answer    *Answer // without its state, which follows
	Services  map[registry.Name]*registry.Service
	Endpoints map[registry.Name]*wireEndpoints
}

// A wireQuery is a Query with its number, which its Answer repeats.
type wireQuery struct {
	Query
	Number int
}

type wireUpdate struct {
	Set       bool
	Revision  int64
	Received  time.Time
	Services  []registry.Change[registry.Service]
	Endpoints []registry.Change[wireEndpoints]
}

type wireEndpoints struct {
	Name  registry.Name
	Ports []wirePort
}

type wirePort struct {
	Port  string
	Addrs []string
}

// encode makes a report that gob can send.
func encode(r Report) wireReport {
	w := wireReport{At: r.At, Settled: r.Settled, Answer: r.Answer}
	if u := r.Update; u != nil {
		w.Update = &wireUpdate{Set: u.Set, Revision: u.Revision, Received: u.Received, Services: u.Services}
		for _, c := range u.Endpoints {
			w.Update.Endpoints = append(w.Update.Endpoints, registry.Change[wireEndpoints]{Name: c.Name, Value: encodeEndpoints(c.Value)})
		}
	}
	if r.Answer != nil {
		w.Services = r.Answer.state.Services
		w.Endpoints = make(map[registry.Name]*wireEndpoints, len(r.Answer.state.Endpoints))
		for name, e := range r.Answer.state.Endpoints {
			w.Endpoints[name] = encodeEndpoints(e)
		}
	}
	return w
}

// decode returns the report that was sent.
func (w wireReport) decode() (r Report, err error) {
	r = Report{At: w.At, Settled: w.Settled, Answer: w.Answer}
	if u := w.Update; u != nil {
		r.Update = &registry.Update{Set: u.Set, Revision: u.Revision, Received: u.Received, Services: u.Services}
		for _, c := range u.Endpoints {
			e, err := c.Value.decode()
			if err != nil {
				return r, err
			}
			r.Update.Endpoints = append(r.Update.Endpoints, registry.Change[registry.Endpoints]{Name: c.Name, Value: e})
		}
	}
	if r.Answer != nil {
		r.Answer.state = State{w.Services, make(map[registry.Name]*registry.Endpoints, len(w.Endpoints))}
		for name, e := range w.Endpoints {
			if r.Answer.state.Endpoints[name], err = e.decode(); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

func encodeEndpoints(e *registry.Endpoints) *wireEndpoints {
	if e == nil {
		return nil
	}
	w := &wireEndpoints{Name: e.Name}
	for _, p := range e.ByPort {
		port := wirePort{Port: p.Port}
		for a := range p.Addrs.All() {
			port.Addrs = append(port.Addrs, a.String())
		}
		w.Ports = append(w.Ports, port)
	}
	return w
}

func (w *wireEndpoints) decode() (*registry.Endpoints, error) {
	if w == nil {
		return nil, nil
	}
	e := &registry.Endpoints{Name: w.Name}
	for _, p := range w.Ports {
		var addrs []registry.Addr
		for _, text := range p.Addrs {
			a, err := registry.ParseAddr(text)
			if err != nil {
				return nil, fmt.Errorf("address %q: %w", text, err)
			}
			addrs = append(addrs, a)
		}
		e.ByPort = append(e.ByPort, registry.PortAddrs{Port: p.Port, Addrs: registry.NewAddrs(addrs...)})
	}
	return e, nil
}
