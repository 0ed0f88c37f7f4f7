package apisource

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"kubeproxy/config/records"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
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
	switch filepath.Ext(file) { // a body alone
	case ".json":
		return []capture{{"a list", "GET /api/v1beta1/" + resourceIn(file) + " HTTP/1.1", fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(text), text)}}
	case ".ndjson":
		return []capture{{"a watch", "GET /api/v1beta1/watch/" + resourceIn(file) + " HTTP/1.1", fmt.Appendf(nil, "HTTP/1.1 200 OK\r\n\r\n%s", text)}}
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

// resourceIn tells which resource a file is about.
func resourceIn(file string) string {
	if strings.Contains(file, "endpoints") {
		return "endpoints"
	}
	return "services"
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
			_, _ = theirs.Write(c.answer) // a client that has read enough hangs up
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
	d := dialect{version: "v1beta1"}
	if m := versionInURL.FindStringSubmatch(c.request); m != nil {
		d.version = m[1]
	}
	name := "services"
	col := collection{"Service", d.version, registry.SpecsPrefix}
	switch {
	case strings.Contains(c.request, "endpointslices"):
		d.version = "v1"
		name, col = "endpointslices", collection{"EndpointSlice", "discovery.k8s.io/v1", registry.EndpointSlicesPrefix}
	case strings.Contains(c.request, "endpoints"):
		name, col = "endpoints", collection{"Endpoints", d.version, registry.EndpointsPrefix}
	}
	if d.version == "v1" {
		p := d.core(name, col)
		return &p
	}
	p := d.old(name, col)
	return &p
}

var versionInURL = regexp.MustCompile(`/api/(v\w+)/`)

// What is in testdata and is not replayed, by file or by file and title.
var notReplayed = map[string]string{
	"rest-session.txt":                "writes: the proxy never sends any",
	"kube-proxy-requests.tsv":         "requests of today's kube-proxy without answers: see TestTheQuestionsAreThoseOfRealProxies",
	"v1beta1-proxy-apiserver.raw.txt": "v0.4.4's own proxy at a server that api-v0.4.4-list-watch.txt is of: see TestTheQuestionsAreThoseOfRealProxies",

	"api-v0.4.4-list-watch.txt: get one":                   "one object by its name: the proxy reads whole collections",
	"api-v0.4.4-list-watch.txt: get one that is not there": "as above",
	"api-v0.4.4-list-watch.txt: unknown resource":          "no resource of a proxy",
	"api-v0.4.4-list-watch.txt: watch unknown resource":    "no resource of a proxy",
	"api-v0.4.4-list-watch.txt: healthz":                   "not asked",
}

// Every answer that a real server was seen to give is understood as it was meant: testdata/captured.golden says how. A file that is
// added to testdata is replayed, or has its reason in notReplayed.
func TestEveryCapturedExchangeReplays(t *testing.T) {
	const golden = "captured.golden"
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(notReplayed)
	skip := func(name string) bool {
		_, ok := notReplayed[name]
		delete(unused, name)
		return ok
	}
	var all strings.Builder
	for _, file := range files {
		if file.Name() == golden || skip(file.Name()) {
			continue
		}
		for _, c := range captures(t, file.Name()) {
			if !skip(file.Name() + ": " + c.title) {
				fmt.Fprintf(&all, "%s: %s\n%s\n", file.Name(), c.title, outcome(t, c))
			}
		}
	}
	for name := range unused {
		t.Errorf("%s is not there: notReplayed need not name it", name)
	}
	recordstest.Golden(t, filepath.Join("testdata", golden), all.String(), *update)
}

var update = flag.Bool("update", false, "write the golden file anew")

// outcome replays an exchange and says what it is taken for, in lines that are indented.
func outcome(t *testing.T, c capture) string {
	cl, _ := replay(t, c)
	p := pathOf(c)
	var lines []string
	say := func(format string, args ...any) { lines = append(lines, "\t"+fmt.Sprintf(format, args...)) }
	decoded := func(v records.Version) {
		if _, _, err := decode.Decode(string(v.Key), v.Value); err != nil {
			say("%s: %v", v.Key, err)
		}
	}
	var err error
	switch url := strings.Fields(c.request)[1]; {
	case strings.Contains(url, "watch"):
		err = cl.watch(t.Context(), p, 8, func(ev event) error {
			say("%s", narrated(ev))
			if !ev.bookmark && !ev.gone {
				decoded(ev.Version)
			}
			return nil
		})
	case strings.Contains(url, "/services"), strings.Contains(url, "/endpoints"), strings.Contains(url, "/endpointslices"):
		l := &listing{seen: make(map[string]struct{})}
		var h head
		h, err = cl.page(t.Context(), p, "/", l)
		if err == nil {
			more := ""
			if h.after != "" {
				more = ", and there is more"
			}
			say("list @%v: %s%s", h.version, keys(l.list.News()), more)
			for _, v := range l.list.News() {
				decoded(v)
			}
		}
	default:
		var about any
		if err = cl.document(t.Context(), "/", &about); err == nil {
			say("%v", about)
		}
	}
	if err != nil {
		say("%v: %v", causeOf(err), err)
	}
	return strings.Join(lines, "\n")
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
	asked, err := os.ReadFile(filepath.Join("testdata", "v1beta1-proxy-apiserver.raw.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{p.listPath(500, ""), p.watchPath(28, 0)} {
		if !strings.Contains(string(asked), "GET "+want+" HTTP/1.1\r\n") {
			t.Errorf("v0.4.4's own proxy does not ask for %s", want)
		}
	}
	text, err := os.ReadFile(filepath.Join("testdata", "kube-proxy-requests.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	d := dialect{version: "v1"}
	today := d.core("services", collection{"Service", "v1", registry.SpecsPrefix})
	today.selector = selectServices
	for verb, path := range map[string]string{"list": today.listPath(500, ""), "watch": today.watchPath(4897, 5*time.Minute)} {
		ours, err := url.Parse(path)
		if err != nil {
			t.Fatal(err)
		}
		theirs := make(url.Values)
		for line := range strings.Lines(string(text)) {
			if columns := strings.Split(strings.TrimSpace(line), "\t"); len(columns) == 4 && columns[2] == verb && strings.HasPrefix(columns[3], ours.Path+"?") {
				_, query, _ := strings.Cut(columns[3], "?")
				more, _ := url.ParseQuery(query)
				maps.Copy(theirs, more)
			}
		}
		for name := range ours.Query() {
			if !theirs.Has(name) {
				t.Errorf("%s: today's kube-proxy does not say %s, but %v", verb, name, theirs)
			}
		}
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
