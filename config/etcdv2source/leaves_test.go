package etcdv2source

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	"kubeproxy/config/records/recordstest"
)

func TestTheKeysOfAListAreFoundWhereverTheyAre(t *testing.T) {
	const dir = `"key":"/registry/services","dir":true`
	for answer, want := range map[string]string{
		`{"action":"get","node":{` + dir + `}}`:              "",
		`{"action":"get","node":{` + dir + `,"nodes":null}}`: "",
		`{"node":{"nodes":[{"key":"/registry/services/b","value":"2"},{"key":"/registry/services/a"}],` + dir + `},"other":[{"x":[1]}]}`:                                                        "/registry/services/a= /registry/services/b=2",
		`{"node":{` + dir + `,"nodes":[{"key":"/registry/services/d","dir":true,"nodes":[{"key":"/registry/services/d/a","value":"1","ttl":7}]},{"key":"/registry/services/_x","value":"1"}]}}`: "/registry/services/d/a=1",
		`{"node":{"key":"/registry/services","value":"1"}}`: "! is no directory",
		`{"node":null}`:                     "! is no directory",
		`[]`:                                "!another shape",
		`{"node":{` + dir + `}} x`:          "!invalid character",
		`{"node":{` + dir + `,"nodes":{}}}`: "!another shape",
		`{"node":{"key":7}}`:                "!cannot unmarshal number",
		`{"node":{` + dir:                   "!unexpected EOF",
		"":                                  "!unexpected EOF",
		strings.Repeat(`{"node":`, 1) + strings.Repeat(`{"nodes":[`, 1000): "!nested more than 100 deep",
	} {
		nodes, err := readLeaves(strings.NewReader(answer), maxList)
		var got []string
		for _, n := range nodes {
			got = append(got, n.Key+"="+n.Value)
		}
		if text, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), text) {
				t.Errorf("%s: error %v; want %q", answer, err, text)
			}
		} else if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, error %v; want %s", answer, got, err, want)
		}
	}
	if _, err := readLeaves(strings.NewReader(`{"other":"`+strings.Repeat("x", 100)), 50); err == nil || !strings.Contains(err.Error(), "too much for a proxy") {
		t.Errorf("an answer beyond the bound: %v", err)
	}
	away := errors.New("the network is away")
	if _, err := readLeaves(io.MultiReader(strings.NewReader(`{"node":{"key":`), failing{away}), 1<<20); !errors.Is(err, away) {
		t.Errorf("a connection that breaks: %v", err)
	}
}

// failing is a reader that fails.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// The text of a list is never held. All that reading it allocates, garbage included, is little more than what is kept.
func TestAListOfEtcd2IsReadInLittleMoreThanWhatIsKept(t *testing.T) {
	var nodes []*node
	value := strings.Repeat("x", 4<<10)
	const keys = 4000
	for i := range keys {
		nodes = append(nodes, &node{Key: recordstest.Spec(fmt.Sprint("s", i)), Value: value, ModifiedIndex: 1, CreatedIndex: 1})
	}
	text, err := json.Marshal(map[string]any{"action": "get", "node": node{Key: root, Dir: true, Nodes: nodes}})
	if err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := readLeaves(bytes.NewReader(text), maxList)
	runtime.ReadMemStats(&after)
	if err != nil || len(got) != keys {
		t.Fatalf("%d keys, error %v", len(got), err)
	}
	allocated, most := after.TotalAlloc-before.TotalAlloc, uint64(len(text))*3/2
	t.Logf("%d bytes of text, %d allocated", len(text), allocated)
	if allocated > most {
		t.Errorf("%d bytes were allocated for a list of %d; want at most %d", allocated, len(text), most)
	}
}
