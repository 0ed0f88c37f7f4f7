//go:build linux

package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
)

// results is what was done, and what was wrong.
type results struct {
	rounds, connections      int
	bytes                    int64
	endings                  map[string]int
	datagrams, replies, lost int // lost: by kernels
	dropped                  int
	takeovers, stops, deaths int
	givenUp                  int // take-overs after which the predecessor went on
	drained                  int // take-overs in which the predecessor drained its connections
	counts                   int // of clients, by the control socket
	wrong                    int
}

func (r *results) add(connections []*connection, udp []*flowsOf) {
	r.rounds++
	if r.endings == nil {
		r.endings = make(map[string]int)
	}
	for _, c := range connections {
		r.connections++
		r.endings["a client saw "+c.client.Saw.String()]++
		r.bytes += c.client.Received
		if c.endpoint != nil {
			r.endings["an endpoint saw "+c.endpoint.Saw.String()]++
			r.bytes += c.endpoint.Received
		}
	}
	for _, f := range udp {
		r.datagrams, r.replies, r.dropped = r.datagrams+f.last.Arrived, r.replies+f.last.Answered, r.dropped+f.last.Dropped
		r.lost += f.last.EndpointFull + f.last.ClientFull + f.last.SessionFull + f.last.QueueFull
	}
}

// print writes the table at the end.
func (r *results) print(out io.Writer) {
	row := func(what string, n any) { fmt.Fprintf(out, "%-45s %12v\n", what, n) }
	row("rounds", r.rounds)
	row("TCP connections", r.connections)
	row("MB that arrived", r.bytes/1e6)
	for _, what := range slices.Sorted(maps.Keys(r.endings)) {
		row("  "+what, r.endings[what])
	}
	row("datagrams to endpoints", r.datagrams)
	row("datagrams to clients", r.replies)
	row("datagrams dropped and counted", r.dropped)
	row("datagrams that kernels dropped", r.lost)
	row("deaths, removals and returns of endpoints", r.deaths)
	row("take-overs", r.takeovers)
	row("  in which connections stayed", r.drained)
	row("take-overs that were given up", r.givenUp)
	row("stops", r.stops)
	row("counts of clients by the control socket", r.counts)
	row("wrong", r.wrong)
}

func (r *results) err() error {
	if r.wrong > 0 {
		return fmt.Errorf("%d faults", r.wrong)
	}
	return nil
}
