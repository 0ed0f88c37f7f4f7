package control

import (
	"net/http"
	"strconv"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/registry"
)

func (n Node) status(r *http.Request) (any, error) {
	service := r.URL.Query().Get("service")
	if service == "" {
		return n.Report(), nil
	}
	name, err := nameOf(service)
	if err != nil {
		return nil, err
	}
	report, ok := n.ReportOf(name)
	if !ok {
		return nil, noService(name)
	}
	return report, nil
}

func noService(name registry.Name) error {
	return notFound("there is no service %s (one of another namespace is NAMESPACE/NAME)", name.Label())
}

// A Log is the answer about changes.
type Log struct {
	Changes []history.Entry `json:"changes"` // the newest last
	Ever    uint64          `json:"ever"`    // since the start
}

func (n Node) log(r *http.Request) (any, error) {
	q := r.URL.Query()
	most := history.Room
	if text := q.Get("n"); text != "" {
		number, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return nil, badRequest("n=%s is no number", registry.QuoteShort(text))
		}
		most = int(min(number, history.Room))
	}
	var passes func(*history.Entry) bool
	if text := q.Get("service"); text != "" {
		name, err := nameOf(text)
		if err != nil {
			return nil, err
		}
		passes = func(e *history.Entry) bool { return e.Service == name.Label() }
	}
	answer := Log{Changes: []history.Entry{}}
	last, ever := n.History.Last(most, passes)
	answer.Changes, answer.Ever = append(answer.Changes, last...), ever
	return answer, nil
}
