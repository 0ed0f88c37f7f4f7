package statuspage

import (
	"net/http"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An endingRow is one ending as it is shown.
type endingRow struct {
	At, Protocol string
	Service      registry.Name
	Label        string
	Client       string
	Endpoint     string // "" if there was none
	Lasted       string
	Sent         string
	Received     string
	Reason       string
	TurnedAway   bool
}

func newEndingRow(e *traffic.Ending, now time.Time) endingRow {
	row := endingRow{
		At: format.Clock(e.Began.Add(e.Duration), now), Protocol: e.Listener.Protocol.String(), Service: e.Service.Name, Label: label(e.Service),
		Lasted: format.Duration(e.Duration), Sent: format.Bytes(float64(e.Sent), true), Received: format.Bytes(float64(e.Received), true),
		Reason: e.Reason.String(), TurnedAway: e.Reason >= traffic.FirstTurnedAway && e.Reason <= traffic.LastTurnedAway,
	}
	if e.Client.IsValid() {
		row.Client = registry.Label(e.Client.String())
	}
	if e.Endpoint != (registry.Addr{}) {
		row.Endpoint = registry.Label(e.Endpoint.String())
	}
	return row
}

// endingsData is what the page of endings shows.
type endingsData struct {
	frame
	Verdict verdict
	Most    int
	Endings []endingRow
}

// endings is the page of the last endings.
func (p *Page) endings(*http.Request) view {
	s := p.look()
	d := endingsData{frame: p.frame(s, "/status/endings", "Last endings", ""), Most: recent.KeptEndings,
		Verdict: newVerdict(s.listed, "All is well.", "", p.node.Host)}
	for _, e := range p.node.Endings.Last(func(*traffic.Ending) bool { return true }) {
		d.Endings = append(d.Endings, newEndingRow(&e, s.at))
	}
	return view{template: "endings.html", status: http.StatusOK, data: d, parts: []part{
		{id: "verdict", template: "verdict", data: d.Verdict},
		{id: "endings", template: "endingrows", data: d.Endings},
		{id: "at", template: "at", data: d},
	}}
}
