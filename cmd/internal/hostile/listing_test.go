//go:build linux

package hostile

import (
	"bufio"
	"fmt"
	"math"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"kubeproxy/cmd/internal/control"
)

// listed is for how long clients are listed, one list after the other.
const listed = 4 * time.Second

// TestAnOperatorWhoListsAllClientsDisturbsNobody: as many connections as there is room for are listed again and again. Those beside them are
// served as if nobody asked.
func TestAnOperatorWhoListsAllClientsDisturbsNobody(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	limitDescriptors(t, uint64(number(20_000, 4096)))
	socket := filepath.Join(t.TempDir(), "control.sock")
	s := newSite(t, fmt.Sprintf("-max_connections_per_service=%d", number(7436, 1472)), "-control="+socket)
	room := s.sum(t, "kubeproxy_limit_max", "limit", "connections")
	clients := int(0.9 * room)
	all := crowd(t, at(silentPort), "", clients, 2000)
	eventually(t, func() bool {
		return math.Abs(s.sum(t, "kubeproxy_connections_active", "service", "default/silent")-float64(clients)) < 10
	}, "%d clients are connected", clients)
	lists, rows := 0, 0
	felt := s.beside(t, func(t *testing.T, atProxy bool) func() {
		until := time.Now().Add(time.Duration(number(int(listed), int(listed/8))))
		if atProxy {
			for time.Now().Before(until) {
				rows = listClients(t, socket)
				if lists++; rows < clients {
					t.Errorf("a list has %d clients; want all %d", rows, clients)
				}
			}
		}
		time.Sleep(time.Until(until))
		return func() {}
	})
	for _, p := range all {
		dismiss(t, p)
	}
	spent := time.Duration(s.rounds()) * time.Duration(number(int(listed), int(listed/8)))
	r := s.row(t, fmt.Sprintf("%d clients listed again and again", clients), base+uint64(room)*connectionBytes)
	r.Felt, r.Refused = felt, fmt.Sprintf("nobody; %d lists of %d clients, %v each", lists, rows, (spent/time.Duration(max(lists, 1))).Round(time.Millisecond))
	r.judge(t)
}

// listClients reads a list of all clients, and counts them.
func listClients(t *testing.T, socket string) (rows int) {
	t.Helper()
	answer, err := control.NewClient(socket).Open(t.Context(), http.MethodGet, "/v1/sessions", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Close()
	lines := bufio.NewScanner(answer)
	for lines.Scan() {
		rows++
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}
