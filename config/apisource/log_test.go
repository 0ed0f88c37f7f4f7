package apisource

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/records/recordstest"
	"kubeproxy/internal/apiserver"
)

// logSince begins a part of the log, and returns a function that reads it: one line for each message that is no V line, beginning with
// the letter of its severity.
func logSince(t *testing.T) func() []string {
	t.Helper()
	text := recordstest.LogSince(t)
	return func() []string { return recordstest.LogLines(text()) }
}

// mustBegin compares the beginnings of log lines.
func mustBegin(t *testing.T, lines []string, want ...string) {
	t.Helper()
	for i := range max(len(lines), len(want)) {
		if i >= len(lines) || i >= len(want) || !strings.HasPrefix(lines[i], want[i]) {
			t.Fatalf("the log reads:\n%s\nwant lines that begin:\n%s", strings.Join(lines, "\n"), strings.Join(want, "\n"))
		}
	}
}

// One resource has a state of its own, so that it has no usable object says nothing of the server.
func TestABadObjectIsNamedThoughItsResourceHasNoOther(t *testing.T) {
	log := logSince(t)
	followOne(t, apiserver.V1, func(f *follower) {
		f.server.PutService("default", "bad", 99999)
		f.server.PutEndpoints("default", "web", "10.0.0.1:80")
		f.begin()
		f.soon()
	})
	mustBegin(t, log(), "I watching API server", `E bad value of key "/registry/services/specs/default/bad" at revision 4: `, "I API server read ")
}

func TestTheLogOfADayWithAServer(t *testing.T) {
	log := logSince(t)
	followOne(t, apiserver.V1Endpoints, func(f *follower) {
		f.server.PutService("default", "web", 8000)
		f.server.PutService("default", "bad", 99999)
		f.begin()
		f.soon()
		f.network.Refuse()
		f.after(20 * time.Second)
		f.network.Open()
		f.after(maxBackoff)
		f.server.Untold(f.server.Wipe)
		f.server.PutService("default", "web", 8000)
		f.source.Resync()
		f.after(maxBackoff)
	})
	lines := log()
	slices.Sort(lines[min(6, len(lines)):]) // the two resources go back each for itself
	mustBegin(t, lines,
		"I watching API server at http://api.test",
		`E bad value of key "/registry/services/specs/default/bad" at revision 5: `,
		"I API server read (\"v1.16.0\", API v1, services at version 5, endpoints at version 5): 1 services, 0 endpoints; 1 objects cannot be used",
		"W API server at http://api.test unreachable: watch ",
		"W API server at http://api.test unreachable: ask for its version: connection refused; without it since ",
		"I API server at http://api.test answers again after ",
		"W endpoints of the API server went back from version 5 to 4 (restored or wiped?); taking that for the truth: no key differs",
		"W services of the API server went back from version 5 to 4 (restored or wiped?); taking that for the truth: 2 keys differ: ",
	)
}

func TestTheLogOfAServerThatRefusesEveryList(t *testing.T) {
	log := logSince(t)
	followOne(t, apiserver.V044, func(f *follower) {
		f.begin()
		f.soon()
		f.server.Undecodable()
		f.after(10 * time.Minute)
	})
	lines := log()
	const want = `W API server at http://api.test: list services: HTTP 500 Internal Server Error: "couldn't get version/kind: YAML error: line 1: did not find expected node content"; the watch goes on from version 3`
	if n := len(lines); n < 3 || n > 12 || !strings.HasPrefix(lines[2], want) {
		t.Errorf("%d lines:\n%s", n, strings.Join(lines, "\n"))
	}
}

func TestTenMinutesWithoutAServerTakeADozenLines(t *testing.T) {
	log := logSince(t)
	followOne(t, apiserver.V1, func(f *follower) {
		f.begin(func(c *Config) {
			c.dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route to host") }
		})
		f.after(10 * time.Minute)
	})
	if lines := log(); len(lines) < 3 || len(lines) > 15 {
		t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
	}
}
