package apisource

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"kubeproxy/config/records"
	"kubeproxy/registry"
)

// A capture is one exchange with a real server, as testdata has it: what was asked, and the bytes of the answer.
type capture struct {
	title, request string
	answer         []byte
}

// captures reads a file of them: ">> " what was sent, "<< " a piece of the answer on the lines that follow, "== " how it ended. A
// piece that does not end a line has a line end that is not its own, and "\r" stands for the character.
func captures(t *testing.T, file string) []capture {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	var all []capture
	for _, part := range strings.Split("\n"+string(text), "\n### ")[1:] {
		var c capture
		var piece *strings.Builder
		flush := func(last bool) {
			if piece == nil {
				return
			}
			text := strings.ReplaceAll(piece.String(), `\r`+"\n", "\r\n")
			if !last && !strings.HasSuffix(text, "\r\n") {
				text = strings.TrimSuffix(text, "\n")
			}
			c.answer, piece = append(c.answer, text...), nil
		}
		c.title, part, _ = strings.Cut(part, "\n")
		for line := range strings.Lines(part) {
			switch {
			case strings.HasPrefix(line, ">> "):
				if c.request == "" {
					c.request = strings.TrimSpace(line[3:])
				}
			case strings.HasPrefix(line, "<< ["):
				flush(false)
				piece = new(strings.Builder)
			case strings.HasPrefix(line, "== "):
				flush(true)
			case piece != nil:
				piece.WriteString(line)
			}
		}
		if head, body, ok := strings.Cut(string(c.answer), "\r\n\r\n"); ok {
			if _, length, ok := strings.Cut(head, "Content-Length: "); ok {
				n, _ := strconv.Atoi(strings.Fields(length)[0])
				c.answer = []byte(head + "\r\n\r\n" + body[:n])
			}
		}
		if c.request != "" && len(c.answer) > 0 {
			all = append(all, c)
		}
	}
	if len(all) == 0 {
		t.Fatalf("no exchange in %s", file)
	}
	return all
}

// replay answers any request with one captured answer, byte for byte, and then ends the connection: a stream that the server left
// open ends in the middle.
func replay(t *testing.T, c capture) (*client, func() string) {
	t.Helper()
	var asked string
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	cfg, err := Config{Server: "http://api.test", dial: func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		serving.Go(func() {
			defer theirs.Close()
			req, err := http.ReadRequest(bufio.NewReader(theirs))
			if err != nil {
				return
			}
			asked = req.Method + " " + req.RequestURI + " " + req.Proto
			_, _ = theirs.Write(c.answer) // whoever has read enough hangs up
		})
		return ours, nil
	}}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	cl, err := newClient(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.close)
	return cl, func() string { serving.Wait(); return asked }
}

// pathOf guesses the resource of a captured request.
func pathOf(c capture) *path {
	var d dialect
	d.version = "v1beta1"
	if strings.Contains(c.request, "/v1/") {
		d.version = "v1"
	}
	name := "services"
	col := collection{"Service", d.version, registry.SpecsPrefix}
	if strings.Contains(c.request, "endpoints") {
		name, col = "endpoints", collection{"Endpoints", d.version, registry.EndpointsPrefix}
	}
	if strings.Contains(c.request, "endpointslices") {
		name, col = "endpointslices", collection{"EndpointSlice", "discovery.k8s.io/v1", registry.EndpointSlicesPrefix}
	}
	if d.version == "v1" {
		p := d.core(name, col)
		return &p
	}
	p := d.old(name, col)
	return &p
}

// What real servers answered is understood: as many objects, each with a key and a value that decode, or the error that it was.
func TestCapturedListsAreUnderstood(t *testing.T) {
	for _, test := range []struct {
		file, title string
		version     version
		want        string // keys with their revisions
	}{
		{"api-v0.4.4-list-watch.txt", "list services, as the proxy asks", 8, "specs/default/dns@7 specs/default/web@5"},
		{"api-v0.4.4-list-watch.txt", "list endpoints", 8, "endpoints/default/dns@8 endpoints/default/web@6"},
		{"api-v0.4.4-list-watch.txt", "list v1beta2", 8, "specs/default/dns@7 specs/default/web@5"},
		{"api-v0.4.4-errors-restarts.txt", "list after etcd came back with nothing in it", 3, ""},
		{"api-v0.4.4-errors-restarts.txt", "list after the bad one was removed", 23, "specs/default/hand@14 specs/default/web@9"},
		{"api-v0.5.4-list-watch.txt", "list services of all namespaces (v0.5.4), as v0.4.4's proxy asks", 10, "specs/default/kubernetes-ro@4 specs/default/kubernetes@5 specs/default/web@10 specs/team/web@8"},
		{"api-v0.5.4-list-watch.txt", "list endpoints", 10, "endpoints/default/kubernetes-ro@7 endpoints/default/kubernetes@6 endpoints/default/web@9"},
		{"api-v1.36.3-list-watch.txt", "from the server's cache (resourceVersion=0), the headless left out as kube-proxy does it", 318, "specs/team/clusterip@161"},
		{"api-v1.36.3-list-watch.txt", "slices", 319, "endpointslices/team/clusterip-47pks@295"},
		{"api-v1.36.3-list-watch.txt", "endpoints: the Warning header", 319, "endpoints/team/clusterip@163"},
		{"api-v1.36.3-errors-restarts.txt", "meanwhile: list", 367, ""},
	} {
		t.Run(test.file+" "+test.title, func(t *testing.T) {
			c := find(t, test.file, test.title)
			cl, _ := replay(t, c)
			p := pathOf(c)
			l := &listing{seen: make(map[string]struct{})}
			h, err := cl.page(t.Context(), p, "/", l)
			if err != nil {
				t.Fatal(err)
			}
			state := records.New(registry.Decoder{})
			state.Merge(l.list, int64(h.version), nil, 0)
			if got := keys(l.list.News()); got != test.want || h.version != test.version {
				t.Errorf("@%v: %s\nwant @%v: %s", h.version, got, test.version, test.want)
			}
			for _, v := range l.list.News() {
				if _, _, err := registry.Decode(string(v.Key), v.Value); err != nil {
					t.Errorf("%s: %v", v.Key, err)
				}
			}
		})
	}
}

func TestCapturedPagesBelongTogether(t *testing.T) {
	first := find(t, "api-v1.36.3-list-watch.txt", "one page of two services: the list's resourceVersion, continue, remainingItemCount")
	cl, asked := replay(t, first)
	l := &listing{seen: make(map[string]struct{})}
	h, err := cl.page(t.Context(), pathOf(first), pathOf(first).listPath(2, ""), l)
	if err != nil || h.version != 318 || keys(l.list.News()) != "specs/default/clusterip@100 specs/default/dns@120" {
		t.Fatalf("%+v, %s, %v", h, keys(l.list.News()), err)
	}
	if asked() != first.request {
		t.Errorf("asked %s; want %s", asked(), first.request)
	}
	next := find(t, "api-v1.36.3-list-watch.txt", "the next page: the same resourceVersion")
	cl, asked = replay(t, next)
	h, err = cl.page(t.Context(), pathOf(next), pathOf(next).listPath(2, h.after), l)
	if err != nil || h.version != 318 || l.list.Len() != 4 {
		t.Fatalf("%+v, %s, %v", h, keys(l.list.News()), err)
	}
	if got, want := strings.Split(asked(), "&"), strings.Split(next.request, "&"); len(got) != len(want) {
		t.Errorf("asked %s; want %s", got, want)
	}
}

func TestCapturedWatchesAreUnderstood(t *testing.T) {
	for _, test := range []struct {
		file, title string
		want        string // events
		end         string // part of the error; empty: none
	}{
		{"api-v0.4.4-watch-events.txt", "watch services from 8, while the right-hand column happens",
			"set specs/default/web@9; delete specs/default/dns@11; set specs/default/hand@13; set specs/default/ttl@15; set specs/default/hand@19", "in the middle"},
		{"api-v0.4.4-watch-events.txt", "watch endpoints from 8", "set endpoints/default/web@10; delete endpoints/default/dns@12", "in the middle"},
		{"api-v0.4.4-errors-restarts.txt", "watch from 9 after 1050 writes elsewhere: history is gone; 200, then an ERROR event, then the end", "", "401: The event in requested index is outdated"},
		{"api-v0.4.4-errors-restarts.txt", "watch, and the API server is killed (SIGTERM) after about 2 s", "", "in the middle"},
		{"api-v0.4.4-errors-restarts.txt", "watch, and etcd is killed after about 2 s, and is back (same data) after 8", "", "501: All the given peers are not reachable"},
		{"api-v0.5.4-list-watch.txt", "watch from 0",
			"set specs/default/kubernetes-ro@4; set specs/default/kubernetes@5; set specs/default/web@10; set specs/team/web@8", "in the middle"},
		{"api-v1.36.3-list-watch.txt", "watch services of team from 319 for timeoutSeconds=6: the server ends it itself",
			"set specs/team/clusterip@320; delete specs/team/clusterip@331; bookmark @331", ""},
		{"api-v1.36.3-list-watch.txt", "watch slices of team from 319 meanwhile",
			"set endpointslices/team/clusterip-47pks@321; set endpointslices/team/clusterip-47pks@324; set endpointslices/team/clusterip-47pks@327; bookmark @327", ""},
		{"api-v1.36.3-errors-restarts.txt", "after it, from a version that was compacted", "", "too old resource version: 330 (361)"},
	} {
		t.Run(test.file+" "+test.title, func(t *testing.T) {
			c := find(t, test.file, test.title)
			cl, _ := replay(t, c)
			var got []string
			err := cl.watch(t.Context(), pathOf(c), 8, func(ev event) error {
				got = append(got, narrated(ev))
				if !ev.bookmark && !ev.gone {
					if _, _, err := registry.Decode(string(ev.Key), ev.Value); err != nil {
						t.Errorf("%s: %v", ev.Key, err)
					}
				}
				return nil
			})
			if s := strings.Join(got, "; "); s != test.want {
				t.Errorf("got  %s\nwant %s", s, test.want)
			}
			switch {
			case test.end == "" && err != nil, test.end != "" && (err == nil || !strings.Contains(err.Error(), test.end)):
				t.Errorf("ended with %v; want %q", err, test.end)
			case strings.Contains(test.end, "401:"), strings.Contains(test.end, "too old"):
				if causeOf(err) != Expired {
					t.Errorf("cause %v", causeOf(err))
				}
			}
		})
	}
}

func TestCapturedRefusalsAreNamed(t *testing.T) {
	for _, test := range []struct {
		file, title string
		cause       Cause
		want        string
	}{
		{"api-v0.4.4-errors-restarts.txt", "list while one record in etcd does not decode: no list for anybody", Unable, `HTTP 500 Internal Server Error: "couldn't get version/kind: YAML error`},
		{"api-v0.4.4-errors-restarts.txt", "list while etcd is away", Unable, `501: All the given peers are not reachable`},
		{"api-v0.4.4-list-watch.txt", "unknown version", Unable, `HTTP 404 Not Found: "Not Found: \"/api/v1beta3/services\"`},
		{"api-v1.36.3-list-watch.txt", "no token", Refused, `HTTP 401 Unauthorized: "Unauthorized"`},
		{"api-v1.36.3-list-watch.txt", "list from the future", Unable, `HTTP 504 Gateway Timeout: "Timeout: Too large resource version`},
		{"api-v1.36.3-errors-restarts.txt", "continue token that was compacted", Expired, `HTTP 410 Gone: "The provided continue parameter is too old`},
	} {
		t.Run(test.file+" "+test.title, func(t *testing.T) {
			c := find(t, test.file, test.title)
			cl, _ := replay(t, c)
			_, err := cl.page(t.Context(), pathOf(c), "/", &listing{seen: make(map[string]struct{})})
			if err == nil || causeOf(err) != test.cause || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v: %v; want %v: %s", causeOf(err), err, test.cause, test.want)
			}
		})
	}
}

// However a real answer is cut, it is an error and nothing else.
func TestAnAnswerThatIsCutAnywhereIsAnError(t *testing.T) {
	c := find(t, "api-v0.4.4-list-watch.txt", "list services, as the proxy asks")
	for n := range len(c.answer) {
		cut := c
		cut.answer = c.answer[:n]
		cl, _ := replay(t, cut)
		if _, err := cl.page(t.Context(), pathOf(c), "/", &listing{seen: make(map[string]struct{})}); err == nil {
			t.Errorf("no error after %d of %d bytes", n, len(c.answer))
		}
	}
}

// The paths are those that v0.4.4's own proxy and today's ask for.
func TestTheQuestionsAreThoseOfRealProxies(t *testing.T) {
	old := find(t, "api-v0.4.4-list-watch.txt", "watch from 4: history is replayed")
	p := pathOf(old)
	if got := "GET " + p.watchPath(4, 0) + " HTTP/1.1"; got != old.request {
		t.Errorf("watch: %s; want %s", got, old.request)
	}
	old = find(t, "api-v0.4.4-list-watch.txt", "list services, as the proxy asks")
	if got := "GET " + p.listPath(500, "") + " HTTP/1.1"; got != old.request {
		t.Errorf("list: %s; want %s", got, old.request)
	}
}

func find(t *testing.T, file, title string) capture {
	t.Helper()
	for _, c := range captures(t, file) {
		if c.title == title {
			return c
		}
	}
	t.Fatalf("%s has no exchange %q", file, title)
	return capture{}
}

func keys(versions []records.Version) string {
	var all []string
	for _, v := range versions {
		all = append(all, fmt.Sprintf("%s@%d", strings.TrimPrefix(string(v.Key), registry.Prefix), v.Revision))
	}
	return strings.Join(sorted(all), " ")
}

func narrated(ev event) string {
	switch key := strings.TrimPrefix(string(ev.Key), registry.Prefix); {
	case ev.bookmark:
		return fmt.Sprintf("bookmark @%d", ev.Revision)
	case ev.gone:
		return fmt.Sprintf("delete %s@%d", key, ev.Revision)
	default:
		return fmt.Sprintf("set %s@%d", key, ev.Revision)
	}
}

func sorted(s []string) []string { slices.Sort(s); return s }
