package drawing

import (
	"fmt"
	"strings"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/cmd/internal/statuspage/recent"
)

// A Sparkline is one number of the last five minutes.
type Sparkline struct {
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

// Sparklines draws the history of a service.
func Sparklines(points []recent.Point) []Sparkline {
	line := func(label string, value func(recent.Point) float64, text func(float64, bool) string) Sparkline {
		most := 0.0
		for _, p := range points {
			most = max(most, value(p))
		}
		l := Sparkline{Label: label, Now: format.Unknown, Most: text(most, len(points) > 0), Count: len(points)}
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
	return []Sparkline{
		line("Clients", func(p recent.Point) float64 { return float64(p.Active) }, format.Rate),
		line("New per second", func(p recent.Point) float64 { return p.New }, format.Rate),
		line("Sent per second", func(p recent.Point) float64 { return p.Sent }, format.Bytes),
		line("Received per second", func(p recent.Point) float64 { return p.Received }, format.Bytes),
	}
}
