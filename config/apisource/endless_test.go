package apisource

import (
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/records"
	"kubeproxy/registry"
)

// A list that has no end, in one way or another, costs little, and the node says which server cannot complete its list, and why.
func TestAListWithoutAnEndIsGivenUpInWords(t *testing.T) {
	const service = `{"metadata":{"name":"web","namespace":"default","uid":"u","resourceVersion":"5"},"spec":{"ports":[{"port":80}]}}`
	pages := 0
	page := func(w io.Writer, after, items string) {
		fmt.Fprintf(w, `{"metadata":{"resourceVersion":"5","continue":%q},"items":[%s]}`, after, items)
	}
	endless := func(w io.Writer, begin, piece string) {
		fmt.Fprint(w, begin)
		block := strings.Repeat(piece, 64<<10/len(piece)+1)
		for {
			if _, err := io.WriteString(w, block); err != nil {
				return // the client has given up
			}
		}
	}
	compressed := func(answer func(io.Writer)) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Encoding", "gzip")
			z, _ := gzip.NewWriterLevel(w, gzip.BestSpeed) // the level is one
			answer(z)
		}
	}
	plain := func(answer func(io.Writer)) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { answer(w) }
	}
	for what, test := range map[string]struct {
		answer func(http.ResponseWriter)
		reason string
	}{
		"a page that leads to itself": {plain(func(w io.Writer) { page(w, "again", service) }), "the list has no end: its page 2 leads to itself"},
		"pages without objects": {plain(func(w io.Writer) {
			pages++
			page(w, fmt.Sprint(pages), "")
		}), "the list has no end: 100 pages in a row have no new object"},
		"pages of the same object": {plain(func(w io.Writer) {
			pages++
			page(w, fmt.Sprint(pages), service)
		}), "the list has no end: 100 pages in a row have no new object"},
		"white space":                {plain(func(w io.Writer) { endless(w, `{"items":[`, " ") }), "more than 1024 KiB of white space"},
		"white space after the list": {plain(func(w io.Writer) { endless(w, `{"items":[`+service+`],`, "\n") }), "more than 1024 KiB of white space"},
		"a member that is skipped":   {compressed(func(w io.Writer) { endless(w, `{"junk":"`, "a") }), "more than 64 KiB of one value"},
		"an object":                  {compressed(func(w io.Writer) { endless(w, `{"items":[{"metadata":"`, "a") }), "more than 16384 KiB of one value"},
		"members":                    {plain(func(w io.Writer) { endless(w, `{"a":1`, `,"a":1`) }), "a list has more than 100 members"},
	} {
		t.Run(what, func(t *testing.T) {
			followOne(t, dialects["1.36.3"], func(f *follower) {
				f.server.PutService("default", "web", 8000)
				f.server.Break(func(e exchange) bool {
					if e.Watch || e.Resource != "services" {
						return false
					}
					e.W.Header().Set("Content-Type", "application/json")
					test.answer(e.W)
					return true
				})
				f.begin()
				f.after(2 * time.Second)
				if st := f.source.Status(); st.Ready || st.Connected || st.Cause != "error" || !strings.Contains(st.Reason, "list services: ") || !strings.Contains(st.Reason, test.reason) {
					f.t.Errorf("ready: %v, connected: %v, cause %q: %s; want %q", st.Ready, st.Connected, st.Cause, st.Reason, test.reason)
				}
				f.server.Break(nil)
				f.after(2 * maxBackoff)
				f.want("service web=8000")
			})
		})
	}
}

// What all pages hold is bounded together, and what counts is what was sent, not what is kept.
func TestOneListIsBoundedOverAllItsPages(t *testing.T) {
	p := (&dialect{version: "v1"}).core("services", collection{"Service", "v1", registry.SpecsPrefix})
	b := chunk{list: &listing{items: maxKeys, seen: map[string]struct{}{"k": {}}}, path: &p}
	if err := b.add(records.Version{Key: []byte("k")}); err == nil || !strings.Contains(err.Error(), "more than 1048576 services") {
		t.Errorf("one object again and again: %v", err)
	}
	body := io.NopCloser(strings.NewReader(strings.Repeat(" ", 100)))
	timer := time.NewTimer(time.Hour)
	t.Cleanup(func() { timer.Stop() })
	r := pageReader{&response{body: body, ctx: t.Context(), timer: timer}, &p, &listing{bytes: maxRegistry - 50}}
	if _, err := io.ReadAll(r); err == nil || !strings.Contains(err.Error(), "more than 512 MiB of services") {
		t.Errorf("bytes that are not kept: %v", err)
	}
}
