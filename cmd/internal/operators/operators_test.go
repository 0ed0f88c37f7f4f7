package operators

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kubeproxy/proxy/proxytest"
)

func TestMain(m *testing.M) {
	if err := flag.Set("logtostderr", "true"); err != nil { // glog's: a log file would look like a leak
		panic(err)
	}
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

var anyPort = netip.MustParseAddrPort("127.0.0.1:0")

// well are the answers of a node that has nothing to complain of.
func well() Answers {
	return Answers{
		Live:    func() error { return nil },
		Healthy: func() error { return nil },
		Ready:   func() ([]string, error) { return nil, nil },
		Configz: func() any { return map[string]string{"name": "<script>\n\x1b"} },
		Version: map[string]string{"version": "v1"},
		Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "up 1\n") }),
	}
}

// serve runs a server until the test, or what is returned, ends it, and gives its base URLs.
func serve(t *testing.T, cfg Config, a Answers) (urls []string, stop func()) {
	t.Helper()
	s, err := Listen(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, a) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	for _, addr := range s.Addrs() {
		urls = append(urls, "http://"+addr.String())
	}
	return urls, stop
}

// A reply is what matters of an HTTP response.
type reply struct {
	status int
	body   string
	header http.Header
}

func ask(t *testing.T, method, url string) reply {
	t.Helper()
	client := http.Client{
		Timeout:       proxytest.Patience,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	request, err := http.NewRequest(method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply{response.StatusCode, string(body), response.Header}
}

// TestEachAddressAnswersItsPagesAndNoOther: what the one that strangers see does not tell.
func TestEachAddressAnswersItsPagesAndNoOther(t *testing.T) {
	for _, profiling := range []bool{false, true} {
		urls, stop := serve(t, Config{Healthz: anyPort, Metrics: netip.MustParseAddrPort("[::1]:0"), Profiling: profiling}, well())
		healthz, metrics := urls[0], urls[1]
		for path, want := range map[string][2]int{ // at healthz, and at metrics
			"/livez": {200, 200}, "/healthz": {200, 200}, "/readyz": {200, 200},
			"/metrics": {404, 200}, "/configz": {404, 200}, "/version": {404, 200},
			"/": {404, 404}, "/healthz/": {404, 404}, "//healthz": {404, 404}, "/x/../healthz": {404, 404}, "/debug": {404, 404}, "/favicon.ico": {404, 404},
			"/debug/pprof/":          {404, map[bool]int{false: 404, true: 200}[profiling]},
			"/debug/pprof/goroutine": {404, map[bool]int{false: 404, true: 200}[profiling]},
			"/debug/pprof/cmdline":   {404, map[bool]int{false: 404, true: 200}[profiling]},
		} {
			for i, base := range []string{healthz, metrics} {
				if got := ask(t, http.MethodGet, base+path); got.status != want[i] {
					t.Errorf("profiling %v: address %d answers %s with %d, want %d", profiling, i, path, got.status, want[i])
				}
			}
		}
		stop()
	}
}

func TestOneAddressForBothIsOneServer(t *testing.T) {
	urls, _ := serve(t, Config{Healthz: anyPort, Metrics: anyPort}, well())
	if len(urls) != 1 {
		t.Fatalf("it listens at %q, want one address", urls)
	}
	for _, path := range []string{"/healthz", "/metrics"} {
		if got := ask(t, http.MethodGet, urls[0]+path); got.status != http.StatusOK {
			t.Errorf("%s: %+v", path, got)
		}
	}
}

func TestNoAddressIsNoServer(t *testing.T) {
	urls, _ := serve(t, Config{}, well())
	if len(urls) != 0 {
		t.Errorf("it listens at %q", urls)
	}
}

func TestAPortThatIsTakenIsNamedWithItsFlag(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := netip.MustParseAddrPort(taken.Addr().String())
	for flag, cfg := range map[string]Config{
		"-healthz_bind_address: ": {Healthz: addr, Metrics: anyPort},
		"-metrics_bind_address: ": {Healthz: anyPort, Metrics: addr},
	} {
		if _, err := Listen(cfg); err == nil || !strings.HasPrefix(err.Error(), flag) || !strings.Contains(err.Error(), addr.String()) {
			t.Errorf("got %v, want an error that begins with %s", err, flag)
		}
	}
}

func TestOnlyGetAndHead(t *testing.T) {
	urls, _ := serve(t, Config{Metrics: anyPort, Profiling: true}, well())
	for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE", "PATCH", "PROPFIND"} {
		for _, path := range []string{"/healthz", "/metrics", "/configz", "/debug/pprof/symbol"} {
			if got := ask(t, method, urls[0]+path); got.status != http.StatusMethodNotAllowed || got.header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: %+v", method, path, got)
			}
		}
	}
	if got := ask(t, http.MethodHead, urls[0]+"/healthz"); got.status != http.StatusOK || got.body != "" || got.header.Get("Content-Length") != "3" {
		t.Errorf("HEAD: %+v", got)
	}
}

// TestTheReasonIsInTheBody, and each answer is counted.
func TestTheReasonIsInTheBody(t *testing.T) {
	a := well()
	a.Healthy = func() error { return errors.New("draining") }
	a.Ready = func() ([]string, error) { return []string{"a note"}, errors.New("too old") }
	var mu sync.Mutex
	counted := make(map[string]int)
	a.Probed = func(page, code string) {
		mu.Lock()
		defer mu.Unlock()
		counted[page+" "+code]++
	}
	urls, stop := serve(t, Config{Healthz: anyPort}, a)
	for path, want := range map[string]reply{
		"/livez": {status: 200, body: "ok\n"}, "/healthz": {status: 503, body: "draining\n"}, "/readyz": {status: 503, body: "too old\na note\n"},
	} {
		if got := ask(t, http.MethodGet, urls[0]+path); got.status != want.status || got.body != want.body {
			t.Errorf("%s: %+v, want %+v", path, got, want)
		}
	}
	stop()
	if want := "map[healthz 503:1 livez 200:1 readyz 503:1]"; fmt.Sprint(counted) != want {
		t.Errorf("counted %v, want %s", counted, want)
	}
}

// TestMarkupInJSONIsEscaped, and no browser is left to guess.
func TestMarkupInJSONIsEscaped(t *testing.T) {
	urls, _ := serve(t, Config{Metrics: anyPort}, well())
	got := ask(t, http.MethodGet, urls[0]+"/configz")
	if got.header.Get("Content-Type") != "application/json" || got.header.Get("X-Content-Type-Options") != "nosniff" || strings.ContainsAny(got.body, "<>\x1b") {
		t.Errorf("%+v", got)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(got.body), &back); err != nil || back["name"] != "<script>\n\x1b" {
		t.Errorf("it reads back as %q, %v", back, err)
	}
}

// dial opens a connection and says something on it.
func dial(t *testing.T, url, say string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, say); err != nil && !strings.Contains(err.Error(), "reset") && !strings.Contains(err.Error(), "broken pipe") {
		t.Fatal(err)
	}
	return conn
}

// TestFiveHundredSlowClientsKeepNobodyFromAsking: some say nothing, some half a request, some are done and
// keep their connection. Few of them hold a descriptor, and everybody else is answered.
func TestFiveHundredSlowClientsKeepNobodyFromAsking(t *testing.T) {
	urls, stop := serve(t, Config{Healthz: anyPort}, well())
	const slow = 500
	gone := make(chan struct{}, slow)
	for i := range slow {
		conn := dial(t, urls[0], []string{"", "GET /hea", "GET /healthz HTTP/1.1\r\nHost: a\r\n", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"}[i%4])
		go func() {
			_, _ = io.Copy(io.Discard, conn) // until it is turned out
			gone <- struct{}{}
		}()
		if i%50 == 0 {
			if got := ask(t, http.MethodGet, urls[0]+"/healthz"); got.status != http.StatusOK {
				t.Fatalf("among %d slow clients: %+v", i, got)
			}
		}
	}
	const room = 16 // half as many as the reserve of 128 leaves both
	for range slow - room {
		proxytest.Receive(t, gone, "the end of a slow client")
	}
	if got := ask(t, http.MethodGet, urls[0]+"/healthz"); got.status != http.StatusOK {
		t.Errorf("among %d slow clients: %+v", slow, got)
	}
	stop()
	for range room {
		proxytest.Receive(t, gone, "the end of a slow client")
	}
}

// TestAClientWhoIsBeingAnsweredKeepsItsPlace: when nobody can make room, the newcomer is turned away.
func TestAClientWhoIsBeingAnsweredKeepsItsPlace(t *testing.T) {
	a := well()
	entered, leave := make(chan struct{}), make(chan struct{})
	a.Healthy = func() error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	urls, _ := serve(t, Config{Healthz: anyPort}, a)
	var served []net.Conn
	for range 16 {
		served = append(served, dial(t, urls[0], "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n"))
		proxytest.Receive(t, entered, "a request")
	}
	late := dial(t, urls[0], "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n")
	if text, err := io.ReadAll(late); len(text) > 0 {
		t.Errorf("the newcomer is told %q, %v", text, err)
	}
	close(leave)
	for _, conn := range served {
		if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "200 OK") {
			t.Errorf("who came early is told %q, %v", line, err)
		}
	}
}

// TestOnlyAFewScrapesAtATime: the others are told to come back, and the probes are not affected.
func TestOnlyAFewScrapesAtATime(t *testing.T) {
	a := well()
	entered, leave := make(chan struct{}), make(chan struct{})
	a.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	urls, _ := serve(t, Config{Metrics: anyPort}, a)
	var scrapes sync.WaitGroup
	for range atWork {
		scrapes.Go(func() {
			if got := ask(t, http.MethodGet, urls[0]+"/metrics"); got.status != http.StatusOK {
				t.Errorf("%+v", got)
			}
		})
		proxytest.Receive(t, entered, "a scrape")
	}
	if got := ask(t, http.MethodGet, urls[0]+"/metrics"); got.status != http.StatusServiceUnavailable || got.header.Get("Retry-After") == "" {
		t.Errorf("one too many: %+v", got)
	}
	if got := ask(t, http.MethodGet, urls[0]+"/livez"); got.status != http.StatusOK {
		t.Errorf("meanwhile: %+v", got)
	}
	close(leave)
	scrapes.Wait()
}

func TestAHeaderHasToEnd(t *testing.T) {
	urls, _ := serve(t, Config{Healthz: anyPort}, well())
	conn := dial(t, urls[0], "GET /healthz HTTP/1.1\r\nHost: a\r\nX: "+strings.Repeat("x", 64<<10))
	line, _ := bufio.NewReader(conn).ReadString('\n')
	if line != "" && !strings.Contains(line, "431") {
		t.Errorf("answered %q, want a refusal", line)
	}
}

// TestAnswersAreFinishedAtTheEnd, but nobody is waited for who takes his time.
func TestAnswersAreFinishedAtTheEnd(t *testing.T) {
	a := well()
	entered, leave := make(chan struct{}), make(chan struct{})
	a.Healthy = func() error {
		close(entered)
		<-leave
		return nil
	}
	urls, stop := serve(t, Config{Healthz: anyPort}, a)
	dial(t, urls[0], "")
	told := make(chan reply, 1)
	go func() { told <- ask(t, http.MethodGet, urls[0]+"/healthz") }()
	proxytest.Receive(t, entered, "the request")
	time.AfterFunc(50*time.Millisecond, func() { close(leave) })
	stop()
	if got := proxytest.Receive(t, told, "the answer"); got.status != http.StatusOK {
		t.Errorf("%+v", got)
	}
}
