//go:build linux

package hostile

import (
	"bufio"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"kubeproxy/cmd/internal/control"
)

// lists is how often all clients are listed, one list after the other.
const lists = 8

// TestAListOfAllClientsIsWholeAndHoldsNoLoop: as many connections as there is room for are listed, again and again. Each list has them all, and no
// turn of a loop takes longer than beside an attack. How long clients beside it wait is no promise: a program that lists takes its share of the processors
// as any other does.
func TestAListOfAllClientsIsWholeAndHoldsNoLoop(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	limitDescriptors(t, uint64(number(20_000, 4096)))
	socket := filepath.Join(t.TempDir(), "control.sock")
	s := newSite(t, fmt.Sprintf("-max_connections_per_service=%d", number(7436, 1472)), "-control="+socket)
	room := s.sum(t, "kubeproxy_limit_max", "limit", "connections")
	clients := int(0.9 * room)
	yardstick := cast(t, "yardstick")
	all := crowd(t, at(silentPort), "", clients, 2000)
	eventually(t, func() bool { return listClients(t, socket) >= clients }, "%d clients have an endpoint", clients) // one whose SYN was lost has it a second later
	began := time.Now()
	for range lists {
		if rows := listClients(t, socket); rows < clients {
			t.Errorf("a list has %d clients; want all %d", rows, clients)
		}
	}
	each := time.Since(began) / lists
	for _, p := range all {
		dismiss(t, p)
	}
	s.works(t)
	r := s.row(t, fmt.Sprintf("%d clients listed again and again", clients), base+uint64(room)*connectionBytes)
	r.Refused = fmt.Sprintf("nobody; each list took %v", each.Round(time.Millisecond))
	r.Turn = s.longestTurn(t)
	r.Yardstick, r.FirstThread = lastOf(t, yardstick)
	dismiss(t, yardstick)
	if bound := max(longestTurn, r.Yardstick); *full && r.Turn > bound {
		r.tooSlow(t, "a turn of a loop took %v; want %v at most (the yardstick took %v)", r.Turn, bound, r.Yardstick)
	}
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
