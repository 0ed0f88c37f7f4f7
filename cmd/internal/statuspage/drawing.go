package statuspage

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/cmd/internal/statuspage/recent"
)

// A sparkline is one number of the last five minutes.
type sparkline struct {
	Label  string
	Now    string
	Most   string
	Points string // of an SVG polyline in a box of 240 by 40
	Count  int
}

// The box of a sparkline. A point stands for five seconds, the newest one is at the right.
const (
	sparkWidth, sparkHeight = 240, 40
)

// sparklines draws the history of a service.
func sparklines(points []recent.Point) []sparkline {
	line := func(label string, value func(recent.Point) float64, text func(float64, bool) string) sparkline {
		most := 0.0
		for _, p := range points {
			most = max(most, value(p))
		}
		l := sparkline{Label: label, Now: format.Unknown, Most: text(most, len(points) > 0), Count: len(points)}
		var b strings.Builder
		for i, p := range points {
			x := sparkWidth - float64(len(points)-1-i)*sparkWidth/(recent.KeptPoints-1)
			y := sparkHeight - 1.0
			if most > 0 {
				y -= value(p) / most * (sparkHeight - 3)
			}
			fmt.Fprintf(&b, "%.0f,%.1f ", x, y)
			l.Now = text(value(p), true)
		}
		l.Points = strings.TrimSpace(b.String())
		return l
	}
	return []sparkline{
		line("Clients", func(p recent.Point) float64 { return float64(p.Active) }, format.Rate),
		line("New per second", func(p recent.Point) float64 { return p.New }, format.Rate),
		line("Sent per second", func(p recent.Point) float64 { return p.Sent }, format.Bytes),
		line("Received per second", func(p recent.Point) float64 { return p.Received }, format.Bytes),
	}
}

// A topology is the drawing of one rotation: clients, ports, endpoints.
type topology struct {
	Height, Middle int
	Clients        string // how many come
	Ports          string
	Endpoints      []drawnEndpoint
	More           string
	MoreY          int
	Summary        string // in words, for who does not see it
}

// A drawnEndpoint is one endpoint in the drawing.
type drawnEndpoint struct {
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

// newTopology draws the ports and the endpoints of one rotation.
func newTopology(ports []port, r rotationView) topology {
	shown := r.Endpoints[:min(len(r.Endpoints), maxDrawn)]
	rows := max(len(shown), 1)
	more := len(r.Endpoints) - len(shown) + r.More
	if more > 0 {
		rows++
	}
	t := topology{Height: rows*drawnHeight + 12, Clients: "no port open"}
	t.Middle = t.Height / 2
	var active int64
	var sum recent.Rates
	var names []string
	seen := make(map[string]bool)
	for _, p := range ports {
		names = append(names, p.ID.Short())
		if !seen[p.ID.Protocol.String()] { // ports of one protocol and one name are counted together
			seen[p.ID.Protocol.String()] = true
			active += p.active
			sum = sum.Plus(p.Rates)
		}
	}
	if len(names) > 0 {
		t.Clients = fmt.Sprintf("%s · %s/s new", plural(int(active), "client"), format.Rate(sum.New, sum.Known))
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
		d := drawnEndpoint{Y: 6 + i*drawnHeight + drawnHeight/2, Addr: ellipsis(e.Addr), Rate: format.Rate(e.New, e.Known) + "/s", Width: "1.5", Failing: e.Failing}
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
	t.Summary = fmt.Sprintf("%s reach %s, which leads to %s; %d of those drawn do not answer.", t.Clients, r.Label, plural(len(r.Endpoints)+r.More, "endpoint"), failing)
	return t
}

// ellipsis cuts a text that is too long for its box.
func ellipsis(s string) string {
	if utf8.RuneCountInString(s) <= maxDrawnLen {
		return s
	}
	return string([]rune(s)[:maxDrawnLen-1]) + "…"
}
