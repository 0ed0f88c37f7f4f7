package apisource

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"

	"kubeproxy/config/remote"
	"kubeproxy/registry"
)

func TestAValueIsCutWhereItEnds(t *testing.T) {
	for _, value := range []string{`{}`, `{"a":[1,{"b":"}]\"{"}]}`, `[]`, `"a\\"`, `"\""`, `12.5e3`, `null`, `true`, `{"a":"` + strings.Repeat("x", 100_000) + `"}`} {
		s := newScanner(iotest.OneByteReader(strings.NewReader(" \n" + value + "\n,rest")))
		got, long, err := s.next(1 << 20)
		if string(got) != value || long || err != nil {
			t.Errorf("%.40s: %.40s, %t, %v", value, got, long, err)
		}
		if c, err := s.peek(); c != ',' || err != nil {
			t.Errorf("%.40s: after it comes %q, %v", value, c, err)
		}
	}
}

func TestAValueThatIsTooLongIsNotHeld(t *testing.T) {
	s := newScanner(strings.NewReader(`["` + strings.Repeat("x", 1<<20) + `"] 1 `))
	got, long, err := s.next(10)
	if len(got) != 10 || !long || err != nil || cap(s.text) > 100 {
		t.Errorf("%d bytes in a buffer of %d, %t, %v", len(got), cap(s.text), long, err)
	}
	if got, _, err := s.next(10); string(got) != "1" || err != nil {
		t.Errorf("after it comes %s, %v", got, err)
	}
}

// Whatever a server sends, the scanner ends, and gives what package json takes for the same values.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{`{"a":1}{"b":[2]}`, `"x" 1 null`, `[`, `}`, `{"a":"\`, "\x00", `{]}`, "\"x\" 1\x7f\xff", `1"x"`, `null[`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s := newScanner(strings.NewReader(string(text) + " "))
		d := json.NewDecoder(strings.NewReader(string(text) + " "))
		for {
			got, _, err := s.next(1 << 20)
			var want json.RawMessage
			if d.Decode(&want) != nil {
				return // from here on it is no JSON
			}
			next := (string(text) + " ")[d.InputOffset()]
			if !strings.ContainsAny(string(want[:1]), `"{[`) && next > ' ' && !strings.ContainsRune(",]}", rune(next)) {
				return // a number or a word runs into what follows: no JSON of a server
			}
			if err != nil || string(got) != string(want) {
				t.Fatalf("%q: got %q, %v; want %q", text, got, err, want)
			}
		}
	})
}

// Whatever a server sends for a list or an event, nothing panics, and JSON that is no list is an error.
func FuzzListsAndEvents(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"ServiceList","resourceVersion":8,"items":[{"id":"web","resourceVersion":5,"port":1}]}`,
		`{"metadata":{"resourceVersion":"8"},"items":[{"metadata":{"name":"web","namespace":"a","uid":"u","resourceVersion":"5"},"spec":{}}]}`,
		`{"metadata":{"ResourceVersion":"8"},"items":[]}`, `{"metadata":{"resource\u0056ersion":"8"}}`, `{"metadata":{},"items":[]}`, `{"resourceVersion":"8"`,
		`{"type":"ADDED","object":{"metadata":{"name":1,"resourceVersion":"x"}}}`, `{"resourceVersion":8,"items":null}`,
	} {
		f.Add([]byte(seed))
	}
	p := (&dialect{version: "v1"}).core("services", collection{"Service", "v1", registry.SpecsPrefix})
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, long := range []bool{false, true} {
			if ev, err := p.event(text, long); err == nil && !strings.HasPrefix(string(ev.Key), registry.SpecsPrefix) {
				t.Errorf("%q: key %s", text, ev.Key)
			}
		}
		l := &listing{seen: make(map[string]struct{})}
		_, err := readPage(newScanner(strings.NewReader(string(text))), &p, l)
		if err == nil && withoutVersion(text) {
			t.Errorf("%q is a list", text)
		}
	})
}

// withoutVersion reports whether package json finds no resourceVersion in text, neither v1beta1's nor v1's.
func withoutVersion(text []byte) bool {
	var page struct {
		ResourceVersion json.RawMessage
		Metadata        struct{ ResourceVersion json.RawMessage }
	}
	err := json.NewDecoder(bytes.NewReader(text)).Decode(&page)
	return err == nil && page.ResourceVersion == nil && page.Metadata.ResourceVersion == nil
}

// Of an object that is longer than any record only the beginning is held, and it is rejected by its name. The others are not hurt.
func TestAnObjectThatIsTooLongHurtsOnlyItself(t *testing.T) {
	followOne(t, dialects["1.36.3"], func(f *follower) {
		huge := fmt.Sprintf(`{"metadata":{"name":"huge","namespace":"team","resourceVersion":"%%d"},"spec":{"x":%q}}`, strings.Repeat("x", registry.MaxRecordBytes))
		f.server.PutService("default", "web", 8000)
		f.server.Break(func(e exchange) bool {
			if e.Resource != "services" || e.Watch {
				return false
			}
			fmt.Fprintf(e.W, `{"metadata":{"resourceVersion":"4"},"items":[%s,{"metadata":{"name":"web","resourceVersion":"4"},"spec":{"ports":[{"port":8000}]}}]}`, fmt.Sprintf(huge, 3))
			return true
		})
		f.begin()
		f.soon()
		f.want("service web=8000")
		f.server.Send("services", `{"type":"ADDED","object":`+fmt.Sprintf(strings.Replace(huge, "huge", "larger", 1), 5)+`}`)
		f.soon()
		f.want("service web=8000")
		st := f.source.Status()
		if st.Rejected != 2 || st.Rejections[0].Key != "/registry/services/specs/team/huge" || !strings.Contains(st.Rejections[1].Reason, "is longer than the limit") ||
			st.Sessions != 1 {
			f.t.Errorf("status %+v", st)
		}
	})
}

func apiVersionsOnly() http.Handler {
	log.SetOutput(io.Discard) // package http's complaints about handshakes
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"versions":["v1"]}`) })
}

func pemOf(der []byte) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestCausesAreFoundInWrappedErrors(t *testing.T) {
	err := fmt.Errorf("list: %w", remote.Because(Forbidden, errors.New("no")))
	if causeOf(err) != Forbidden || causeOf(errors.New("x")) != Broken {
		t.Errorf("%v", causeOf(err))
	}
	for c := range NumCauses {
		if c.String() == "" || !strings.Contains(causes[c].line, "%s") {
			t.Errorf("cause %d has no words", c)
		}
	}
}
