package statuspage

import (
	"fmt"
	"net/http"
	"time"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/proxy/balance"
	"kubeproxy/registry"
)

// maxServiceChanges is how many changes the page of one service lists.
const maxServiceChanges = 20

// A changeRow is one change as it is shown.
type changeRow struct {
	At, By    string
	Service   registry.Name // zero: the change is about the node, or about several
	Of        string
	Change    string
	Corrected bool // a full list found what the watch had missed
}

func newChangeRow(e *history.Entry, now time.Time) changeRow {
	row := changeRow{At: format.Clock(e.Time, now), By: e.Source, Of: e.Of, Change: e.Change, Corrected: e.Corrected}
	switch {
	case e.UID != nil:
		row.By = e.Source + ", " + balance.Who(*e.UID)
	case e.Revision != 0:
		row.By = fmt.Sprintf("%s, revision %d", e.Source, e.Revision)
	}
	row.Service, _ = registry.ParseName(e.Service) // no name: the node
	return row
}

// changesOf lists the last changes that pass, the newest first.
func (p *Page) changesOf(most int, passes func(*history.Entry) bool, now time.Time) (rows []changeRow, ever uint64) {
	last, ever := p.node.History.Last(most, passes)
	for i := range last {
		rows = append(rows, newChangeRow(&last[len(last)-1-i], now))
	}
	return rows, ever
}

// changesData is what the page of changes shows.
type changesData struct {
	frame
	Verdict verdict
	Ever    uint64 // changes since the start
	Changes []changeRow
}

// changes is the page of the last changes. It is as of when it was asked for: a thousand rows are too much to be sent each second.
func (p *Page) changes(*http.Request) view {
	s := p.look()
	d := changesData{frame: p.frame(s, "/status/changes", "Last changes", ""), Verdict: newVerdict(s.listed, "All is well.", "", p.node.Host)}
	d.Events = ""
	d.Changes, d.Ever = p.changesOf(history.Room, nil, s.at)
	return view{template: "changes.html", status: http.StatusOK, data: d}
}
