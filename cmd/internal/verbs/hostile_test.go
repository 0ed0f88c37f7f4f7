package verbs

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"kubeproxy/cmd/internal/commandline"
	"kubeproxy/cmd/internal/inert"
)

// hostile would clear a terminal, set its title, turn a line around, and hide what follows.
const hostile = "a\x1b[2J\x1b]0;x\a\u202eb\u0085c\x7f\U000e0041"

// hostileAnswers are those of a node that hides nothing of what strangers have written: its program may be another one.
var hostileAnswers = map[string]string{
	"/v1/status": `{"host":X,"verdict":X,"problems":[X,X],"overrides":[X],"figures":X,"service":{"name":X,"algorithm":X,
		"ports":[{"protocol":X,"address":X,"name":X,"state":X}],"endpoints":[{"port_name":X,"address":X,"state":X}]}}`,
	"/v1/log":      `{"changes":[{"source":X,"service":X,"of":X,"change":X,"corrected":true}]}`,
	"/v1/sessions": `{"protocol":X,"service":X,"address":X,"client":X,"via":X,"endpoint":X,"local":X,"client_state":X,"endpoint_state":X,"of another release":X}`,
	"/v1/names":    `{"names":[X,"default/web"]}`,
	"/v1/kill":     `{"ended":1}`,
	"/v1/wait":     `{"endpoint":X,"clients":1}`,
	"/v1/override": `{"overrides":[{"service":X,"endpoint":X,"word":X}],"clients":1,"warning":X}`,
	"/v1/enable":   `{"overrides":[{"service":X,"endpoint":X,"word":X}],"warning":X}`,
}

// arguments are those with which each verb can be carried out, or reads what only it reads.
var arguments = map[string]string{
	"status": "web", "log": "web", "sessions": "", "kill": "-service web", "wait": "-endpoint 10.0.0.1:80", "drain": "web 10.0.0.1:80",
	"disable": "web 10.0.0.1:80", "enable": "web 10.0.0.1:80", "weight": "web 10.0.0.1:80 5", "drain-node": "", "names": "web",
}

// TestNoVerbShowsWhatATerminalMightTakeForACommand, as text or as JSON, in an answer or in an error.
func TestNoVerbShowsWhatATerminalMightTakeForACommand(t *testing.T) {
	for _, fails := range []bool{false, true} {
		path := hostileNode(t, fails)
		for i, one := range All() {
			for _, output := range []string{"text", "json"} {
				t.Run(fmt.Sprint(one.Word, " ", output, " fails=", fails), func(t *testing.T) {
					args, ok := arguments[one.Word]
					if !ok {
						t.Fatal("this test has no arguments for it")
					}
					v := All()[i]
					c := commandline.New(v.Word, "", "", func(f *pflag.FlagSet) error { return v.Examine(f.Args()) })
					v.Define(c)
					if err := c.Parse(append(strings.Fields(args), "-o="+output)); err != nil {
						t.Fatal(err)
					}
					var stdout, stderr strings.Builder
					if status := v.Ask(path, &stdout, &stderr); (status == failed) != fails {
						t.Errorf("exit status %d: %s", status, &stderr)
					}
					said := stdout.String() + stderr.String()
					if i := strings.IndexFunc(said, func(r rune) bool { return !inert.Shows(r) }); i >= 0 || said == "" {
						t.Errorf("it says %q", said)
					}
					if output == "json" && !fails && strings.Contains(hostileAnswers[pathOf(v.Word)], "X") && !strings.Contains(said, `a\u001b[2J`) {
						t.Errorf("JSON does not say what it was: %s", said)
					}
				})
			}
		}
	}
}

// pathOf is where a verb asks.
func pathOf(word string) string {
	switch word {
	case "drain", "disable", "weight", "drain-node":
		return "/v1/override"
	}
	return "/v1/" + word
}

// hostileNode serves the answers, or errors, at a socket.
func hostileNode(t *testing.T, fails bool) (path string) {
	t.Helper()
	var spelled strings.Builder // as little escaped as JSON allows
	for _, r := range hostile {
		if r < ' ' {
			fmt.Fprintf(&spelled, `\u%04x`, r)
		} else {
			spelled.WriteRune(r)
		}
	}
	return serveNode(t, func(w http.ResponseWriter, r *http.Request) {
		answer := hostileAnswers[r.URL.Path]
		if fails {
			w.WriteHeader(http.StatusConflict)
			answer = `{"error":X}`
		}
		fmt.Fprintln(w, strings.ReplaceAll(answer, "X", `"`+spelled.String()+`"`))
	})
}

// serveNode answers at a socket in the place of a node.
func serveNode(t *testing.T, answer http.HandlerFunc) (path string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "v") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: answer}
	done := make(chan struct{})
	go func() { defer close(done); server.Serve(l) }()
	t.Cleanup(func() { server.Close(); <-done })
	return path
}

// TestALongListOfSessionsShowsNamesAsTheyAre, wherever the blocks end in which it is written.
func TestALongListOfSessionsShowsNamesAsTheyAre(t *testing.T) {
	const name, rows = "dienst-für-ä", 3 * rowsAtOnce
	path := serveNode(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := range rows { // of different lengths, so that blocks end anywhere
			fmt.Fprintf(w, `{"service":%q,"endpoint":"10.0.0.1:80","client_state":"%0*d"}`+"\n", name, 1+i%7, 0)
		}
	})
	var stdout, stderr strings.Builder
	if status := newSessions().Ask(path, &stdout, &stderr); status != Done || strings.Count(stdout.String(), name) != rows {
		t.Errorf("exit status %d: %d of %d names are whole: %s", status, strings.Count(stdout.String(), name), rows, &stderr)
	}
}

// TestAnAnswerThatCannotBeWrittenIsAFailure, of each verb, as text and as JSON.
func TestAnAnswerThatCannotBeWrittenIsAFailure(t *testing.T) {
	path := hostileNode(t, false)
	for i, one := range All() {
		for _, output := range []string{"text", "json"} {
			v := All()[i]
			c := commandline.New(v.Word, "", "", func(f *pflag.FlagSet) error { return v.Examine(f.Args()) })
			v.Define(c)
			if err := c.Parse(append(strings.Fields(arguments[one.Word]), "-o="+output)); err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			if status := v.Ask(path, full{}, &stderr); status != failed || !strings.Contains(stderr.String(), errFull.Error()) {
				t.Errorf("%s as %s: exit status %d, %q", one.Word, output, status, &stderr)
			}
		}
	}
}

var errFull = errors.New("no space is left")

// A full disk.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, errFull }

// TestAllVerbsHaveAHostileAnswer, so that none is left out above.
func TestAllVerbsHaveAHostileAnswer(t *testing.T) {
	for _, v := range All() {
		if hostileAnswers[pathOf(v.Word)] == "" {
			t.Errorf("%s asks at %s, of which there is no hostile answer", v.Word, strconv.Quote(pathOf(v.Word)))
		}
	}
}
