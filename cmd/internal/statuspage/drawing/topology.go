package drawing

import (
	"fmt"
	"unicode/utf8"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/registry"
)

// A Topology is the drawing of one rotation: clients, ports, endpoints.
type Topology struct {
	Height, Middle int
	Clients        string // how many come
	Ports          string
	Endpoints      []Drawn
	More           string
	MoreY          int
	Summary        string // in words, for who does not see it
}

// A Drawn is one endpoint in the drawing.
type Drawn struct {
	Y       int // of its middle
	Addr    string
	Rate    string
	Width   string // of its line
	Failing bool
}

// How much a drawing shows, and the height of one endpoint.
const (
	maxDrawn    = 8
	drawnHeight = 34
	maxDrawnLen = 34 // characters of an address
)

// A Port is one of those that lead to a rotation.
type Port struct {
	ID     registry.ListenerID
	Active int64 // clients of all ports of its protocol and its name
	recent.Rates
}

// An Endpoint is one of a rotation.
type Endpoint struct {
	Addr    string
	Failing bool
	recent.Rates
}

// NewTopology draws the ports and the endpoints of one rotation, of which there are so many more.
func NewTopology(label string, ports []Port, endpoints []Endpoint, unlisted int) Topology {
	shown := endpoints[:min(len(endpoints), maxDrawn)]
	rows := max(len(shown), 1)
	more := len(endpoints) - len(shown) + unlisted
	if more > 0 {
		rows++
	}
	t := Topology{Height: rows*drawnHeight + 12, Clients: "no port open"}
	t.Middle = t.Height / 2
	var active int64
	var sum recent.Rates
	var names []string
	seen := make(map[registry.Protocol]bool)
	for _, p := range ports {
		names = append(names, p.ID.Short())
		if !seen[p.ID.Protocol] { // ports of one protocol and one name are counted together
			seen[p.ID.Protocol] = true
			active += p.Active
			sum = sum.Plus(p.Rates)
		}
	}
	if len(names) > 0 {
		t.Clients = fmt.Sprintf("%s · %s/s new", format.Plural(int(active), "client"), format.Rate(sum.New, sum.Known))
		if t.Ports = names[0]; len(names) > 1 {
			t.Ports = fmt.Sprintf("%s + %d", names[0], len(names)-1)
		}
	}
	most := 0.0
	for _, e := range shown {
		most = max(most, e.New)
	}
	failing := 0
	for i, e := range shown {
		d := Drawn{Y: 6 + i*drawnHeight + drawnHeight/2, Addr: ellipsis(e.Addr), Rate: format.Rate(e.New, e.Known) + "/s", Width: "1.5", Failing: e.Failing}
		if most > 0 {
			d.Width = fmt.Sprintf("%.1f", 1.5+4*e.New/most)
		}
		if e.Failing {
			d.Rate = "no answer"
			failing++
		}
		t.Endpoints = append(t.Endpoints, d)
	}
	if more > 0 {
		t.More, t.MoreY = fmt.Sprintf("and %s more", format.Whole(more)), 6+len(shown)*drawnHeight+drawnHeight/2
	}
	t.Summary = fmt.Sprintf("%s reach %s, which leads to %s; %d of those drawn do not answer.", t.Clients, label, format.Plural(len(endpoints)+unlisted, "endpoint"), failing)
	return t
}

// ellipsis cuts a text that is too long for its box.
func ellipsis(s string) string {
	if utf8.RuneCountInString(s) <= maxDrawnLen {
		return s
	}
	return string([]rune(s)[:maxDrawnLen-1]) + "…"
}
