package control

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// An Override is an operator's word as answers, the file and a successor have it.
type Override struct {
	Service  string    `json:"service,omitempty"` // "": it is about the node
	Endpoint string    `json:"endpoint,omitempty"`
	Word     string    `json:"word"`             // drain, disable or weight
	Weight   int       `json:"weight,omitempty"` // with weight
	UID      int       `json:"uid"`
	Began    time.Time `json:"began"`
	Until    time.Time `json:"until"`
}

// NewOverrides describes overrides.
func NewOverrides(all []balance.Override) []Override {
	described := make([]Override, 0, len(all))
	for _, o := range all {
		d := Override{Word: o.Word.String(), Weight: o.Weight, UID: o.UID, Began: o.Began.UTC().Round(0), Until: o.Until.UTC().Round(0)}
		if !o.IsOfNode() {
			d.Service, d.Endpoint = o.Service.Label(), o.Addr.String()
		}
		described = append(described, d)
	}
	return described
}

// Parse reads an override of an earlier process. It lasts for as long as it has left by the clock on the wall, and never longer than it was to
// last; ok is false if that is over.
func (d *Override) Parse() (o balance.Override, ok bool, err error) {
	if o.Word, err = balance.ParseWord(d.Word); err != nil {
		return o, false, fmt.Errorf("word %s: %w", registry.QuoteShort(d.Word), err)
	}
	if d.Service != "" {
		if o.Service, err = registry.ParseName(d.Service); err != nil {
			return o, false, fmt.Errorf("service %s: %w", registry.Quote(d.Service), err)
		}
		if o.Addr, err = registry.ParseAddr(d.Endpoint); err != nil {
			return o, false, fmt.Errorf("endpoint %s: %w", registry.Quote(d.Endpoint), err)
		}
	}
	if d.Weight < 0 || d.Weight > maxWeight {
		return o, false, fmt.Errorf("weight %d is not between 0 and %d", d.Weight, maxWeight)
	}
	now := time.Now()
	left := min(time.Until(d.Until), d.Until.Sub(d.Began))
	o.Weight, o.UID, o.Began, o.Until = d.Weight, d.UID, d.Began, now.Add(left)
	if o.Began.After(now) { // the clock was set back. It has as long left as it was to last then, also for who reads it next
		o.Began = now
	}
	return o, left > 0, nil
}

const maxWeight = 256

// DefaultFor is how long an override lasts if its request does not say.
const DefaultFor = time.Hour

// maxFor is the longest that one may last: what is meant for longer belongs into the record.
const maxFor = 30 * 24 * time.Hour

// A Wish is the request for an override.
type Wish struct {
	Service  string `json:"service,omitempty"`
	Endpoint string `json:"endpoint,omitempty"`
	Word     string `json:"word,omitempty"`
	Weight   int    `json:"weight,omitempty"`
	For      string `json:"for,omitempty"` // such as 1h
	Force    bool   `json:"force,omitempty"`
}

// Done is the answer to it.
type Done struct {
	Overrides []Override `json:"overrides"`         // those that it was about
	Left      int64      `json:"clients,omitempty"` // disable: clients that could not be ended yet
	Warning   string     `json:"warning,omitempty"`
}

func (n Node) overrides(*http.Request) (any, error) {
	return Done{Overrides: NewOverrides(n.Overrides())}, nil
}

// about reads which endpoints a wish is about.
func (w *Wish) about() (service registry.Name, match registry.AddrMatch, err error) {
	if w.Service == "" && w.Endpoint == "" {
		return service, match, nil // the node
	}
	if service, err = nameOf(w.Service); err != nil {
		return service, match, err
	}
	if match, err = registry.ParseAddrMatch(w.Endpoint); err != nil {
		return service, match, badRequest("invalid endpoint %s: %v", registry.Quote(w.Endpoint), err)
	}
	return service, match, nil
}

// parse reads a wish.
func (w *Wish) parse() (o balance.Override, match registry.AddrMatch, err error) {
	if o.Service, match, err = w.about(); err != nil {
		return o, match, err
	}
	if o.Word, err = balance.ParseWord(w.Word); err != nil {
		return o, match, badRequest("invalid word %s: %v", registry.QuoteShort(w.Word), err)
	}
	if o.IsOfNode() && o.Word != balance.Drain {
		return o, match, badRequest("a node can be drained, and nothing else: name a service and an endpoint")
	}
	if w.Weight < 0 || w.Weight > maxWeight {
		return o, match, badRequest("weight %d is not between 0 and %d", w.Weight, maxWeight)
	}
	lasts := DefaultFor
	if w.For != "" {
		if lasts, err = time.ParseDuration(w.For); err != nil || lasts <= 0 || lasts > maxFor {
			return o, match, badRequest("invalid time %s: more than 0, and up to %v", registry.QuoteShort(w.For), maxFor)
		}
	}
	o.Weight = w.Weight
	o.Began = time.Now()
	o.Until = o.Began.Add(lasts)
	return o, match, nil
}

func (n Node) override(r *http.Request) (any, error) {
	var wish Wish
	if err := decodeBody(r, &wish); err != nil {
		return nil, err
	}
	o, match, err := wish.parse()
	if err != nil {
		return nil, err
	}
	o.UID = uidOf(r)
	done, err := n.Proxier.Override(match, o, wish.Force)
	if err != nil {
		return nil, refusal(err)
	}
	for _, o := range done {
		before := "none"
		if o.Before != nil {
			before = fmt.Sprintf("%s (%s)", o.Before, balance.Who(o.Before.UID))
		}
		n.note(r, history.Entry{Of: "override", Service: labelOf(&o), Change: fmt.Sprintf("%s → %s for %v", before, &o, o.Until.Sub(o.Began).Round(time.Second))})
	}
	answer := Done{Overrides: NewOverrides(done)}
	if err := n.Save(); err != nil {
		answer.Warning = "a restart will forget this: " + err.Error()
	}
	if o.Word == balance.Disable {
		if answer.Left, err = n.empty(r, o.Service, match); err != nil {
			answer.Warning = strings.TrimPrefix(answer.Warning+"; clients may be left: "+err.Error(), "; ")
		}
	}
	return answer, nil
}

// labelOf names the service of an override in the history.
func labelOf(o *balance.Override) string {
	if o.IsOfNode() {
		return ""
	}
	return o.Service.Label()
}

// refusal gives an error its status.
func refusal(err error) error {
	switch {
	case errors.Is(err, balance.ErrNoSuchEndpoint):
		return failure{http.StatusNotFound, err}
	case errors.Is(err, balance.ErrLastEndpoint):
		return failure{http.StatusConflict, err}
	}
	return unavailable(err)
}

// How long a disabled endpoint is looked at for clients that had chosen it before, and were still connecting.
const (
	emptyWithin = 6 * time.Second
	emptyLook   = 50 * time.Millisecond
)

// empty ends the clients of endpoints that are disabled, and returns how many are left that are known, and why there may be others.
func (n Node) empty(r *http.Request, service registry.Name, match registry.AddrMatch) (left int64, err error) {
	for until := time.Now().Add(emptyWithin); ; {
		if _, err := n.end(r.Context(), traffic.Selection{Service: service, Endpoint: match}); err != nil {
			return left, err
		}
		if left, err = n.Proxier.ClientsOf(service, match); left == 0 || time.Now().After(until) {
			return left, err // an error: the kernel may have some
		}
		select {
		case <-time.After(emptyLook):
		case <-r.Context().Done():
			return left, err
		}
	}
}

func (n Node) enable(r *http.Request) (any, error) {
	var wish Wish
	if err := decodeBody(r, &wish); err != nil {
		return nil, err
	}
	service, match, err := wish.about()
	if err != nil {
		return nil, err
	}
	ended, err := n.Proxier.Enable(service, match)
	if err != nil {
		return nil, refusal(err)
	}
	if len(ended) == 0 {
		return nil, notFound("there is no override of it")
	}
	for _, o := range ended {
		n.note(r, history.Entry{Of: "override", Service: labelOf(&o), Change: fmt.Sprintf("%s → none", &o)})
	}
	answer := Done{Overrides: NewOverrides(ended)}
	if err := n.Save(); err != nil && !errors.Is(err, ErrNotKept) {
		answer.Warning = "a restart will put it in force again: " + err.Error()
	}
	return answer, nil
}

// Ended returns what remembers the overrides that end by themselves.
func Ended(changes *history.History) func(o balance.Override, why string) {
	return func(o balance.Override, why string) {
		uid := o.UID
		changes.Note(history.Entry{Time: time.Now(), Source: history.Operator, UID: &uid, Of: "override", Service: labelOf(&o), Change: fmt.Sprintf("%s → none: %s", &o, why)})
	}
}
