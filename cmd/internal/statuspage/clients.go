package statuspage

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"kubeproxy/cmd/internal/statuspage/format"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// What a table of clients costs at most: the event loops give a list of their clients in bounded slices, and each slice is a turn of theirs.
const (
	maxClientRows = 50
	listTimeout   = time.Second
	freshList     = 2 * time.Second // a list is shown as of now for so long
)

// A clientTable is the clients of one service at one moment: those that are idle the longest, since a client that hangs is one of them.
type clientTable struct {
	Rows    []clientRow
	All     int    // that were met
	Missing string // why there may be more; "" if there are not
	AsOf    string // "" if that is about now

	at time.Time
}

// A clientRow is one client as it is shown.
type clientRow struct {
	Protocol, Client string
	Via              string // the proxy that it came by
	Endpoint, Local  string // "" while one is being looked for
	Age, Idle        string
	Sent, Received   string
	State            string // of both sides

	idle time.Duration
}

// clientsOf lists the clients of a service. Viewers wait for each other meanwhile, and no client waits for them.
func (p *Page) clientsOf(name registry.Name) *clientTable {
	if t, ok := p.clients.Of(name, func() *clientTable { return listClients(&p.node, name) }); ok {
		shown := *t // viewers share it
		if now := time.Now(); now.Sub(t.at) > freshList {
			shown.AsOf = format.Clock(t.at, now)
		}
		return &shown
	}
	return &clientTable{Missing: "The clients are not listed yet: to list those of other services took long."}
}

func listClients(node *Node, name registry.Name) *clientTable {
	t := &clientTable{at: time.Now()}
	if node.Proxier.KernelStatus() != nil {
		t.Missing = "Clients that the kernel carries are not listed: conntrack -L has those."
	}
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	for some, err := range node.Proxier.Clients(ctx, traffic.Selection{Service: name}, false) {
		switch {
		case ctx.Err() != nil:
			t.Missing = fmt.Sprintf("There are more: the list took %v, and ended.", listTimeout)
		case err != nil:
			t.Missing = "The list is not complete: " + cut(err.Error()) + "."
		}
		for i := range some {
			t.add(&some[i])
		}
	}
	t.shorten()
	t.Rows = slices.Clone(t.Rows) // without the room for more
	return t
}

// add keeps a client if it may be among those that are shown.
func (t *clientTable) add(c *traffic.Client) {
	t.All++
	t.Rows = append(t.Rows, newClientRow(c))
	if len(t.Rows) >= 2*maxClientRows {
		t.shorten()
	}
}

func (t *clientTable) shorten() {
	slices.SortStableFunc(t.Rows, func(a, b clientRow) int { return cmp.Compare(b.idle, a.idle) })
	t.Rows = t.Rows[:min(len(t.Rows), maxClientRows)]
}

// More is how many clients are not shown.
func (t *clientTable) More() int { return t.All - len(t.Rows) }

func newClientRow(c *traffic.Client) clientRow {
	row := clientRow{
		Protocol: c.Listener.Protocol.String(), Client: registry.Label(c.Client.String()), Age: format.Duration(c.Age), Idle: format.Unknown,
		Sent: format.Bytes(float64(c.Sent), true), Received: format.Bytes(float64(c.Received), true), idle: c.Idle,
	}
	if c.Idle >= 0 {
		row.Idle = format.Duration(c.Idle)
	}
	if c.Via.IsValid() {
		row.Via = registry.Label(c.Via.String())
	}
	if c.Endpoint != (registry.Addr{}) {
		row.Endpoint = registry.Label(c.Endpoint.String())
	}
	if c.Local.IsValid() {
		row.Local = c.Local.String()
	}
	if row.State = c.ClientState; c.EndpointState != "" && c.EndpointState != c.ClientState {
		row.State += ", endpoint " + c.EndpointState
	}
	return row
}
