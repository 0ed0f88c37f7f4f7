//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"time"

	"kubeproxy/internal/backoff"
)

// A watcher asks over and over how many clients an endpoint has that always has some: sessions of UDP clients that talk in each round, with
// endpoints that do not die. An answer of 0 is a fault, for an operator would replace its program then (kube-proxy wait).
type watcher struct {
	client  http.Client
	answers int
	zeros   []string // sentences
}

func newWatcher(p *proxy) *watcher {
	socket := filepath.Join(p.group.Dir, "control.sock") // beside that of -takeover
	return &watcher{client: http.Client{Timeout: readyIn, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

// run asks of these endpoints, one after the other, until ctx ends. A process that hands over, or has just taken over, answers that it has to be
// asked again.
func (w *watcher) run(ctx context.Context, places []*place) {
	for i := 0; ctx.Err() == nil; i++ {
		p := places[i%len(places)]
		if clients, ok := w.ask(ctx, p); ok {
			if w.answers++; clients == 0 {
				w.zeros = append(w.zeros, fmt.Sprintf("at %s the control socket said that %v, an endpoint of service %s, has no client; its sessions go on",
					time.Now().Format("15:04:05.000"), p.addr, p.of.name))
			}
		}
		backoff.Sleep(ctx, 10*time.Millisecond)
	}
}

func (w *watcher) ask(ctx context.Context, p *place) (clients int, ok bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://node/v1/wait?timeout=0s&endpoint=%v", p.addr), nil)
	if err != nil {
		return 0, false
	}
	response, err := w.client.Do(request)
	if err != nil {
		return 0, false
	}
	defer response.Body.Close()
	var left struct {
		Clients *int `json:"clients"`
	}
	if response.StatusCode != http.StatusOK || json.NewDecoder(response.Body).Decode(&left) != nil || left.Clients == nil {
		return 0, false
	}
	return *left.Clients, true
}

// settled are the endpoints of which a session goes on since the round before. There are none where counts leave clients out: those of the kernel, and
// after a take-over with the portable engine those that the predecessor keeps.
func (t *torture) settled() (all []*place) {
	if t.results.rounds == 0 || t.kernel || len(t.takeovers) > 0 && slices.Contains(append(t.takeovers, t.engine), "portable") {
		return nil
	}
	for _, f := range t.udp {
		if f.calm && len(f.regulars) > 0 {
			all = append(all, f.places...)
		}
	}
	return all
}
