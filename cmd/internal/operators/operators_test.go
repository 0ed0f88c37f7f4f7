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
	"net/http/httptest"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"kubeproxy/cmd/internal/crowd"
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
		urls, stop := serve(t, Config{Healthz: anyPort, Metrics: netip.MustParseAddrPort("[::1]:0"), MetricsOnly: anyPort, Profiling: profiling}, well())
		for path, want := range map[string][3]int{ // at healthz, at metrics, and where there are metrics only
			"/livez": {200, 200, 404}, "/healthz": {200, 200, 404}, "/readyz": {200, 200, 404},
			"/metrics": {404, 200, 200}, "/configz": {404, 200, 404}, "/version": {404, 200, 404},
			"/": {404, 404, 404}, "/healthz/": {404, 404, 404}, "//healthz": {404, 404, 404}, "/x/../healthz": {404, 404, 404}, "/debug": {404, 404, 404}, "/favicon.ico": {404, 404, 404},
			"/debug/pprof/":          {404, map[bool]int{false: 404, true: 200}[profiling], 404},
			"/debug/pprof/goroutine": {404, map[bool]int{false: 404, true: 200}[profiling], 404},
			"/debug/pprof/cmdline":   {404, map[bool]int{false: 404, true: 200}[profiling], 404},
		} {
			for i, base := range urls {
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

// TestAPortThatAnotherProgramHasIsOpenedOnceItIsFree: until then the server runs, and services cannot have the port.
func TestAPortThatAnotherProgramHasIsOpenedOnceItIsFree(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	addr := netip.MustParseAddrPort(taken.Addr().String())
	for _, cfg := range []Config{{Healthz: addr, Metrics: anyPort}, {Healthz: anyPort, Metrics: addr}} {
		s, err := Listen(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if ports := s.Ports(); len(ports) != 2 || !slices.Contains(ports, addr.Port()) {
			t.Errorf("services cannot have %v; want two ports, %d among them", ports, addr.Port())
		}
		s.Close()
	}
	urls, stop := serve(t, Config{Healthz: addr, Metrics: anyPort}, well())
	if got := ask(t, http.MethodGet, urls[1]+"/healthz"); got.status != http.StatusOK {
		t.Errorf("at the other address: %+v", got)
	}
	taken.Close()
	proxytest.Eventually(t, func() bool {
		response, err := http.Get(urls[0] + "/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, "an answer at the address that has become free")
	http.DefaultClient.CloseIdleConnections()
	stop()
}

// TestAnAddressThatCannotBeIsNamedWithItsFlag: it is a mistake, and waiting mends none.
func TestAnAddressThatCannotBeIsNamedWithItsFlag(t *testing.T) {
	addr := netip.MustParseAddrPort("203.0.113.1:10256") // of no machine
	for flag, cfg := range map[string]Config{
		"-healthz_bind_address: ": {Healthz: addr, Metrics: anyPort},
		"-metrics_bind_address: ": {Healthz: anyPort, Metrics: addr},
	} {
		if _, err := Listen(cfg); err == nil || !strings.HasPrefix(err.Error(), flag) || !strings.Contains(err.Error(), addr.String()) {
			t.Errorf("got %v, want an error that begins with %s", err, flag)
		}
	}
}

// TestReadersThatDoNotReadKeepNobodyFromScraping: what they asked for was made long ago, and holds no slot.
func TestReadersThatDoNotReadKeepNobodyFromScraping(t *testing.T) {
	const size, slow = 8 << 20, 40
	a := well()
	page := strings.Repeat("x", size)
	a.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, page) })
	a.Configz = func() any { return page }
	urls, _ := serve(t, Config{Metrics: anyPort}, a)
	for i := range slow { // far more than there are slots, and more than may be connected
		conn := dial(t, urls[0], "GET "+[]string{"/metrics", "/configz"}[i%2]+" HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := bufio.NewReaderSize(conn, 16).Peek(1); err != nil { // it is being sent, and goes no further
			t.Fatal(err)
		}
		if got := ask(t, http.MethodGet, urls[0]+"/metrics"); got.status != http.StatusOK || len(got.body) != size {
			t.Fatalf("beside %d readers that do not read: status %d, %d bytes", i+1, got.status, len(got.body))
		}
	}
}

// TestPagesThatAreBeingSentAreBounded, those of all addresses together: beyond that, the reader that has taken longest is given up.
func TestPagesThatAreBeingSentAreBounded(t *testing.T) {
	r, clients := new(unread), crowd.New(nil, 100)
	at := []*renderer{newRenderer(r), newRenderer(r)} // two addresses
	var conns []net.Conn
	var sent []func()
	for i := range 9 {
		here, there := net.Pipe()
		defer here.Close()
		conns = append(conns, there)
		sent = append(sent, at[i%2].send(clients.Admit(here), maxHeld/8))
		if r.held > maxHeld {
			t.Errorf("%d bytes are held; want %d at most", r.held, maxHeld)
		}
	}
	if _, err := conns[0].Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the oldest reader: %v; want the end of its connection", err)
	}
	for _, done := range sent {
		done()
	}
	if r.held != 0 || len(r.sending) != 0 {
		t.Errorf("when all is sent, %d bytes and %d pages are held", r.held, len(r.sending))
	}
}

// TestASourceThatConnectsWithoutEndTakesOnlyItsOwnRoom: who came before it from elsewhere, and has said nothing
// yet, is answered.
func TestASourceThatConnectsWithoutEndTakesOnlyItsOwnRoom(t *testing.T) {
	urls, _ := serve(t, Config{Healthz: anyPort}, well())
	from := func(source string) net.Conn {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(source)}}
		conn, err := dialer.Dial("tcp", strings.TrimPrefix(urls[0], "http://"))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return conn
	}
	early := from("127.0.0.2")
	var last net.Conn
	for range 200 {
		last = from("127.0.0.3")
	}
	late := from("127.0.0.4")
	for _, conn := range []net.Conn{last, early, late} { // the last has come, and so all before it
		io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
		if line, err := bufio.NewReader(conn).ReadString('\n'); !strings.Contains(line, "200 OK") {
			t.Errorf("from %s: answered %q, %v", conn.LocalAddr(), line, err)
		}
	}
}

// TestAtALoopbackAddressStrangersNamesAreRefused: a page in a browser of this machine could have its own name mean
// 127.0.0.1, and read what only users of this machine are to see.
func TestAtALoopbackAddressStrangersNamesAreRefused(t *testing.T) {
	own, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	urls, _ := serve(t, Config{Healthz: anyPort, Metrics: netip.MustParseAddrPort("[::1]:0"), Profiling: true}, well())
	asked := func(url, path, host string) int {
		conn := dial(t, url, "GET "+path+" HTTP/1.1\r\nHost: "+host+"\r\nConnection: close\r\n\r\n")
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		return response.StatusCode
	}
	for host, want := range map[string]int{
		"evil.example": 421, "evil.example:10249": 421, "localhost.evil.example": 421, "127.0.0.1.evil.example": 421,
		"localhost": 200, "LOCALHOST:1": 200, "a.localhost": 200, "127.0.0.1:10249": 200, "[::1]:10249": 200, "10.0.0.1": 200, own: 200, own + ":1": 200, "": 200,
	} {
		for _, path := range []string{"/metrics", "/configz", "/version", "/debug/pprof/cmdline"} {
			if got := asked(urls[1], path, host); got != want {
				t.Errorf("%s as %q: %d, want %d", path, host, got, want)
			}
		}
		for _, url := range urls {
			if got := asked(url, "/healthz", host); got != http.StatusOK { // which a load balancer asks under any name
				t.Errorf("/healthz as %q: %d, want 200", host, got)
			}
		}
	}
}

// TestAtOtherAddressesEveryNameIsAnswered: Prometheus asks under the name that its configuration has.
func TestAtOtherAddressesEveryNameIsAnswered(t *testing.T) {
	request := httptest.NewRequest(http.MethodGet, "http://node7.example:10249/metrics", nil)
	for addr, want := range map[string]int{"10.0.0.7": 200, "fd00::7": 200, "127.0.0.1": 421, "::1": 421} {
		local := &net.TCPAddr{IP: net.ParseIP(addr), Port: 10249}
		answer := httptest.NewRecorder()
		well().pages(t.Context(), everything, false, 16, newRenderer(new(unread))).ServeHTTP(answer, request.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, local)))
		if answer.Code != want {
			t.Errorf("at %s: %d, want %d", addr, answer.Code, want)
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
// keep their connection. Few of them hold a descriptor, and all other clients are answered.
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

// TestAClientWhoIsBeingAnsweredKeepsItsPlace: when no connection can make room, the newcomer is turned away.
func TestAClientWhoIsBeingAnsweredKeepsItsPlace(t *testing.T) {
	a := well()
	entered, leave := make(chan struct{}), make(chan struct{})
	a.Live = func() error {
		entered <- struct{}{}
		<-leave
		return nil
	}
	urls, _ := serve(t, Config{Healthz: anyPort}, a)
	var served []net.Conn
	for range 16 {
		served = append(served, dial(t, urls[0], "GET /livez HTTP/1.1\r\nHost: a\r\n\r\n"))
		proxytest.Receive(t, entered, "a request")
	}
	late := dial(t, urls[0], "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n")
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

// TestLivezAnswersWhileOtherProbesHang: as many requests of /readyz and /healthz hang as there are places for clients.
func TestLivezAnswersWhileOtherProbesHang(t *testing.T) {
	a := well()
	entered, leave := make(chan struct{}), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(leave) })
	hang := func() error {
		select {
		case entered <- struct{}{}:
		case <-leave:
		}
		<-leave
		return nil
	}
	a.Healthy = hang
	a.Ready = func() ([]string, error) { return nil, hang() }
	urls, _ := serve(t, Config{Healthz: anyPort}, a)
	t.Cleanup(goOn)
	for i := range 16 {
		dial(t, urls[0], []string{"GET /readyz", "GET /healthz"}[i%2]+" HTTP/1.1\r\nHost: a\r\n\r\n")
	}
	for range atWork {
		proxytest.Receive(t, entered, "a probe that hangs")
	}
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	proxytest.Eventually(t, func() bool {
		response, err := client.Get(urls[0] + "/livez")
		if err != nil {
			return false // a request of the others has not reached its place in the queue yet
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	}, "/livez answers")
	goOn()
	if got := ask(t, http.MethodGet, urls[0]+"/readyz"); got.status != http.StatusOK {
		t.Errorf("/readyz says %+v when nothing hangs any more", got)
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

// TestAnswersAreFinishedAtTheEnd, but the end does not wait for a slow client.
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

// TestStreamsTakeHalfOfTheRoomAtMost: more get a 503, other pages are answered, and a stream that ends makes room for another. At a
// loopback address a stream is for this machine's names only.
func TestStreamsTakeHalfOfTheRoomAtMost(t *testing.T) {
	for _, c := range []struct{ room, want int }{{100, maxStreams}, {16, 8}, {6, 3}, {1, 1}} {
		began := make(chan struct{})
		a := well()
		a.Streams = map[string]http.Handler{"/stream": http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			began <- struct{}{}
			<-r.Context().Done()
		})}
		stopping, stop := context.WithCancel(t.Context())
		pages := a.pages(stopping, everything, false, c.room, newRenderer(new(unread)))
		ask := func(ctx context.Context, path, host string) int {
			local := context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
			request := httptest.NewRequest(http.MethodGet, "http://"+host+path, nil).WithContext(local)
			answer := httptest.NewRecorder()
			pages.ServeHTTP(answer, request)
			return answer.Code
		}
		var open sync.WaitGroup
		viewer, leave := context.WithCancel(t.Context())
		for i := range c.want {
			ctx := t.Context()
			if i == 0 {
				ctx = viewer
			}
			open.Go(func() { ask(ctx, "/stream", "localhost") })
			<-began
		}
		if got := ask(t.Context(), "/stream", "localhost"); got != http.StatusServiceUnavailable {
			t.Errorf("with room for %d, stream %d is answered with %d", c.room, c.want+1, got)
		}
		if got := ask(t.Context(), "/configz", "localhost"); got != http.StatusOK {
			t.Errorf("beside %d streams another page is answered with %d", c.want, got)
		}
		if got := ask(t.Context(), "/stream", "evil.example"); got != http.StatusMisdirectedRequest {
			t.Errorf("a stranger's name is answered with %d", got)
		}
		leave()
		open.Go(func() {
			for ask(t.Context(), "/stream", "localhost") == http.StatusServiceUnavailable { // until the first has gone
				runtime.Gosched()
			}
		})
		<-began
		stop() // the server's end is that of every stream
		open.Wait()
	}
}
