package main

import (
	"fmt"
	"time"

	"kubeproxy/registry"
)

// A wiredReport is a report on its way between two processes. Package gob cannot look into the packed addresses of
// [registry.Endpoints], so these travel as text.
type wiredReport struct {
	At        time.Time
	Update    *wiredUpdate
	Settled   *int
	Answer    *answer // without what is held:
	Services  map[registry.Name]*registry.Service
	Endpoints map[registry.Name]*wiredEndpoints
}

type wiredUpdate struct {
	Set       bool
	Revision  int64
	Received  time.Time
	Services  []registry.Change[registry.Service]
	Endpoints []registry.Change[wiredEndpoints]
}

type wiredEndpoints struct {
	Name  registry.Name
	Ports []wiredPort
}

type wiredPort struct {
	Port  string
	Addrs []string
}

// wire makes a report fit for the way.
func wire(r report) wiredReport {
	w := wiredReport{At: r.At, Settled: r.Settled, Answer: r.Answer}
	if u := r.Update; u != nil {
		w.Update = &wiredUpdate{Set: u.Set, Revision: u.Revision, Received: u.Received, Services: u.Services}
		for _, c := range u.Endpoints {
			w.Update.Endpoints = append(w.Update.Endpoints, registry.Change[wiredEndpoints]{Name: c.Name, Value: wireEndpoints(c.Value)})
		}
	}
	if r.Answer != nil {
		w.Services = r.Answer.held.Services
		w.Endpoints = make(map[registry.Name]*wiredEndpoints, len(r.Answer.held.Endpoints))
		for name, e := range r.Answer.held.Endpoints {
			w.Endpoints[name] = wireEndpoints(e)
		}
	}
	return w
}

// unwire gives the report that was sent.
func (w wiredReport) unwire() (r report, err error) {
	r = report{At: w.At, Settled: w.Settled, Answer: w.Answer}
	if u := w.Update; u != nil {
		r.Update = &registry.Update{Set: u.Set, Revision: u.Revision, Received: u.Received, Services: u.Services}
		for _, c := range u.Endpoints {
			e, err := c.Value.unwire()
			if err != nil {
				return r, err
			}
			r.Update.Endpoints = append(r.Update.Endpoints, registry.Change[registry.Endpoints]{Name: c.Name, Value: e})
		}
	}
	if r.Answer != nil {
		r.Answer.held = serving{w.Services, make(map[registry.Name]*registry.Endpoints, len(w.Endpoints))}
		for name, e := range w.Endpoints {
			if r.Answer.held.Endpoints[name], err = e.unwire(); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}

func wireEndpoints(e *registry.Endpoints) *wiredEndpoints {
	if e == nil {
		return nil
	}
	w := &wiredEndpoints{Name: e.Name}
	for _, p := range e.ByPort {
		port := wiredPort{Port: p.Port}
		for a := range p.Addrs.All() {
			port.Addrs = append(port.Addrs, a.String())
		}
		w.Ports = append(w.Ports, port)
	}
	return w
}

func (w *wiredEndpoints) unwire() (*registry.Endpoints, error) {
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
