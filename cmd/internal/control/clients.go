package control

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Session is a line of the answer about clients: a TCP connection, or a UDP session.
type Session struct {
	Protocol string  `json:"protocol"`
	Service  string  `json:"service"`
	Address  string  `json:"address,omitempty"` // that the client connected to, if its service has addresses of its own
	Port     uint16  `json:"port"`
	Client   string  `json:"client"`
	Via      string  `json:"via,omitempty"`      // the proxy that the client came by
	Endpoint string  `json:"endpoint,omitempty"` // none while one is being looked for
	Local    string  `json:"local,omitempty"`    // of this node, towards the endpoint
	Age      float64 `json:"age_seconds"`
	Idle     float64 `json:"idle_seconds"` // -1 if it is not known
	Sent     uint64  `json:"sent_bytes"`   // to the endpoint
	Received uint64  `json:"received_bytes"`

	ClientState   string `json:"client_state,omitempty"` // of TCP, as ss(8) names it
	EndpointState string `json:"endpoint_state,omitempty"`
}

// NewSession describes a client.
func NewSession(c *traffic.Client) Session {
	service := c.Service.Name.Label()
	if c.Service.Port != "" {
		service += ":" + registry.Label(c.Service.Port)
	}
	s := Session{
		Protocol: c.Listener.Protocol.String(), Service: service, Address: c.Listener.Address(), Port: c.Listener.Number, Client: c.Client.String(), Via: text(c.Via), Local: text(c.Local),
		Age: c.Age.Round(time.Millisecond).Seconds(), Idle: c.Idle.Round(time.Millisecond).Seconds(), Sent: c.Sent, Received: c.Received,
		ClientState: c.ClientState, EndpointState: c.EndpointState,
	}
	if c.Idle < 0 {
		s.Idle = -1
	}
	if c.Endpoint != (registry.Addr{}) {
		s.Endpoint = registry.Label(c.Endpoint.String())
	}
	return s
}

func text(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}

// A Selection names clients. A field that is empty means any.
type Selection struct {
	Service  string `json:"service,omitempty"`
	Client   string `json:"client,omitempty"`   // an address, ADDRESS:PORT or a network
	Endpoint string `json:"endpoint,omitempty"` // HOST:PORT or HOST
}

// Query is the selection as it stands in the URL of a request.
func (s *Selection) Query() url.Values {
	q := make(url.Values)
	for name, value := range map[string]string{"service": s.Service, "client": s.Client, "endpoint": s.Endpoint} {
		if value != "" {
			q.Set(name, value)
		}
	}
	return q
}

// Parse reads the selection. An error names the field.
func (s *Selection) Parse() (of traffic.Selection, err error) {
	if s.Service != "" {
		if of.Service, err = nameOf(s.Service); err != nil {
			return of, err
		}
	}
	if s.Client != "" {
		if of.Client, err = traffic.ParseClientMatch(s.Client); err != nil {
			return of, badRequest("invalid client %s: %v", registry.Quote(s.Client), err)
		}
	}
	if s.Endpoint != "" {
		if of.Endpoint, err = registry.ParseAddrMatch(s.Endpoint); err != nil {
			return of, badRequest("invalid endpoint %s: %v", registry.Quote(s.Endpoint), err)
		}
	}
	return of, nil
}

// String says in words who is selected.
func (s *Selection) String() string {
	var parts []string
	for _, p := range [...]struct{ name, value string }{{"service", s.Service}, {"client", s.Client}, {"endpoint", s.Endpoint}} {
		if p.value != "" {
			parts = append(parts, p.name+" "+registry.Label(p.value))
		}
	}
	return strings.Join(parts, ", ")
}

// answerSessions writes a line of JSON for each selected client.
func (n Node) answerSessions(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	selected := Selection{q.Get("service"), q.Get("client"), q.Get("endpoint")}
	of, err := selected.Parse()
	if err != nil {
		respond(w, r, func(*http.Request) (any, error) { return nil, err })
		return
	}
	begun := false
	for some, err := range n.Proxier.Clients(r.Context(), of, false) {
		if err != nil {
			if !begun {
				respond(w, r, func(*http.Request) (any, error) { return nil, unavailable(err) })
				return
			}
			panic(http.ErrAbortHandler) // the reader sees that the answer is cut
		}
		if !begun {
			w.Header().Set("Content-Type", "application/x-ndjson")
			begun = true
		}
		for i := range some {
			line, err := inert.Line(NewSession(&some[i]))
			if err != nil {
				panic(http.ErrAbortHandler)
			}
			if _, err := w.Write(line); err != nil {
				return // who asked has left
			}
		}
	}
	if !begun {
		w.Header().Set("Content-Type", "application/x-ndjson")
	}
}

// unavailable is about a node that cannot act for now.
func unavailable(err error) error { return failure{http.StatusServiceUnavailable, err} }

// Killed is the answer to a request to end clients.
type Killed struct {
	Ended int `json:"ended"`
}

// maxPasses bounds how often clients that are to end are looked for: one that moves between event loops may be missed.
const maxPasses = 4

func (n Node) kill(r *http.Request) (any, error) {
	var selected Selection
	if err := decodeBody(r, &selected); err != nil {
		return nil, err
	}
	if selected == (Selection{}) {
		return nil, badRequest("name a service, a client or an endpoint: all clients of a node are not ended at once")
	}
	of, err := selected.Parse()
	if err != nil {
		return nil, err
	}
	ended, err := n.end(r.Context(), of)
	var answer Killed
	for _, service := range slices.SortedFunc(maps.Keys(ended), registry.Name.Compare) {
		answer.Ended += ended[service]
		n.note(r, history.Entry{Of: "clients", Service: service.Label(), Change: fmt.Sprintf("%d of %s → ended", ended[service], &selected)})
	}
	if err != nil {
		return nil, unavailable(err)
	}
	return answer, nil
}

// end ends the clients that are selected, and counts those of each service.
func (n Node) end(ctx context.Context, of traffic.Selection) (ended map[registry.Name]int, err error) {
	ended = make(map[registry.Name]int)
	for range maxPasses {
		met := false
		for some, err := range n.Proxier.Clients(ctx, of, true) {
			if err != nil {
				return ended, err
			}
			met = met || len(some) > 0
			for i := range some {
				ended[some[i].Service.Name]++
			}
		}
		if !met {
			break
		}
	}
	return ended, nil
}

// Left is the answer about the clients of an endpoint.
type Left struct {
	Endpoint string `json:"endpoint"`
	Clients  int64  `json:"clients"`
}

// Bounds of waiting.
const (
	waitLook = 100 * time.Millisecond // between two looks
	maxWait  = 24 * time.Hour
	maxWaits = room / 2 // at one time
)

// wait waits until an endpoint has no client on this node, at two looks in a row: between them, one that has just been given the endpoint is
// counted. It answers with how many there are when the time is over.
func (n Node) wait(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	match, err := registry.ParseAddrMatch(q.Get("endpoint"))
	if err != nil {
		return nil, badRequest("invalid endpoint %s: %v", registry.Quote(q.Get("endpoint")), err)
	}
	timeout, err := time.ParseDuration(q.Get("timeout"))
	if err != nil || timeout < 0 || timeout > maxWait {
		return nil, badRequest("invalid timeout %s: a time up to %v", registry.QuoteShort(q.Get("timeout")), maxWait)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout + answerTimeout)) // a recorder of tests has none
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	for zeros := 0; ; {
		left, err := n.Proxier.ClientsOf(registry.Name{}, match)
		if err != nil {
			return nil, failure{http.StatusConflict, err}
		}
		if zeros++; left > 0 {
			zeros = 0
		}
		answer := Left{registry.Label(q.Get("endpoint")), left}
		if zeros == 2 {
			return answer, nil
		}
		pause := time.After(waitLook)
		select {
		case <-pause:
			continue
		case <-ctx.Done():
		}
		if left > 0 && r.Context().Err() == nil {
			return answer, nil
		}
		select {
		case <-pause: // the next look decides
		case <-r.Context().Done():
			return nil, unavailable(errors.New("the process stops, or hands over: ask again"))
		}
	}
}
