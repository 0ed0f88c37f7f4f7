package control

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net"
	"net/http"
	"time"

	"kubeproxy/cmd/internal/crowd"
	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/statuspage"
	"kubeproxy/internal/ownersocket"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// A Node is what is controlled. Its functions may be called at any time, by any number of goroutines.
type Node struct {
	Report   func() statuspage.Report
	ReportOf func(registry.Name) (report statuspage.Report, ok bool)
	History  *history.History
	Proxier  Proxier

	Endpoints interface {
		RotationStatus() iter.Seq[rotation.Status]
		Status() []rotation.EndpointStatus
		StatusOf(service registry.Name) []rotation.EndpointStatus
	}
	Overrides func() []balance.Override
	Save      func() error // keeps the overrides for a restart; ErrNotKept: nothing is kept
}

// ErrNotKept is that a restart forgets all overrides.
var ErrNotKept = errors.New("there is no -state_dir")

// A Proxier has the clients of the node.
type Proxier interface {
	Clients(ctx context.Context, of traffic.Selection, end bool) iter.Seq2[[]traffic.Client, error]
	ClientsOf(service registry.Name, match registry.AddrMatch) (int64, error)
	Override(match registry.AddrMatch, o balance.Override, force bool) (done []balance.Override, err error)
	Enable(service registry.Name, match registry.AddrMatch) (ended []balance.Override, err error)
}

// A known connection is one of a trusted peer.
type known struct {
	net.Conn
	peer ownersocket.Peer
}

type peerKey struct{}

// withPeer lets handlers know whose request it is.
func withPeer(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := conn.(*crowd.Client); ok {
		conn = c.Conn
	}
	if c, ok := conn.(*known); ok {
		ctx = context.WithValue(ctx, peerKey{}, c.peer)
	}
	return ctx
}

// uidOf is the user who asks.
func uidOf(r *http.Request) int {
	peer, _ := r.Context().Value(peerKey{}).(ownersocket.Peer)
	return peer.UID
}

// nameOf reads the name of a service: NAME, or NAMESPACE/NAME.
func nameOf(text string) (registry.Name, error) {
	name, err := registry.ParseName(text)
	if err != nil {
		return name, badRequest("invalid service %s: %v", registry.Quote(text), err)
	}
	return name, nil
}

// note remembers what the one who asks has done.
func (n Node) note(r *http.Request, e history.Entry) {
	uid := uidOf(r)
	e.Time, e.Source, e.UID = time.Now(), history.Operator, &uid
	n.History.Note(e)
}

// decodeBody reads the JSON of a request.
func decodeBody(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return badRequest("the body cannot be read: %s", registry.Quote(err.Error()))
	}
	return nil
}
