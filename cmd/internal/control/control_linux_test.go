package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/history"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/cmd/internal/statuspage"
	"kubeproxy/proxy/balance"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// hostile is a text that would clear a terminal, set its title, turn a line around, and hide what follows.
const hostile = "a\x1b[2J\x1b]0;x\a\u202eb\u0085c\x7f\U000e0041"

// carried are the clients of a node.
type carried struct {
	clients []traffic.Client
	left    int64
	err     error

	overrides []balance.Override
}

func (c *carried) Clients(_ context.Context, of traffic.Selection, _ bool) iter.Seq2[[]traffic.Client, error] {
	return func(yield func([]traffic.Client, error) bool) {
		if c.err != nil {
			yield(nil, c.err)
			return
		}
		for i := range c.clients {
			if of.Has(&c.clients[i]) && !yield(c.clients[i:i+1], nil) {
				return
			}
		}
		c.clients = nil
	}
}

func (c *carried) ClientsOf(registry.Name, registry.AddrMatch) (int64, error) { return c.left, c.err }

func (c *carried) Override(_ registry.AddrMatch, o balance.Override, force bool) ([]balance.Override, error) {
	if c.err != nil {
		return nil, c.err
	}
	if !force && !o.IsOfNode() {
		return nil, balance.ErrLastEndpoint
	}
	o.Addr = registry.Addr{IP: netip.MustParseAddrPort("10.0.0.1:80")}
	put := o
	if len(c.overrides) > 0 {
		put.Before = &c.overrides[0]
	}
	c.overrides = []balance.Override{o}
	return []balance.Override{put}, nil
}

func (c *carried) Enable(registry.Name, registry.AddrMatch) (ended []balance.Override, err error) {
	ended, c.overrides = c.overrides, nil
	return ended, c.err
}

// serve has a node answer at a socket until the test ends.
func serve(t *testing.T, p Proxier) (path string, changes *history.History) {
	t.Helper()
	dir, err := os.MkdirTemp("", "c") // t.TempDir's are too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "control.sock")
	server, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	changes = new(history.History)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		server.Run(ctx, Node{
			Report: func() statuspage.Report {
				return statuspage.Report{Host: "node", Verdict: hostile, Problems: []string{hostile}}
			},
			ReportOf: func(name registry.Name) (statuspage.Report, bool) {
				return statuspage.Report{OK: true, Verdict: name.Label() + " is well."}, name.Name == "web"
			},
			History:   changes,
			Proxier:   p,
			Overrides: func() []balance.Override { return nil },
			Save:      func() error { return errors.New("the disk is full") },
		})
	}()
	t.Cleanup(func() { stop(); proxytest.Receive(t, done, "the end of the server") })
	return path, changes
}

func onlyShown(t *testing.T, what, text string) {
	t.Helper()
	if i := strings.IndexFunc(text, func(r rune) bool { return !inert.Shows(r) }); i >= 0 {
		t.Errorf("%s has a character that a terminal may take for a command: %q", what, text[i:min(i+20, len(text))])
	}
}

// TestNoAnswerHoldsWhatATerminalMightTakeForACommand, whoever wrote it, and JSON still says what it was.
func TestNoAnswerHoldsWhatATerminalMightTakeForACommand(t *testing.T) {
	path, changes := serve(t, &carried{clients: []traffic.Client{{Service: registry.PortKey{Name: registry.Name{Namespace: "default", Name: hostile}, Port: hostile},
		Endpoint: registry.Addr{Host: hostile}}}})
	changes.Note(history.Entry{Source: hostile, Service: hostile, Of: "service", Change: hostile})
	client := NewClient(path)
	for _, page := range []string{"/v1/status", "/v1/log", "/v1/sessions", "/v1/none" + hostile} {
		response, err := client.http.Get((&url.URL{Scheme: "http", Host: "node", Path: page}).String())
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(response.Body)
		response.Body.Close()
		if err != nil || !json.Valid(text) {
			t.Errorf("%q: %v, %q", page, err, text)
		}
		onlyShown(t, page, string(text))
	}
	var report statuspage.Report
	if err := client.Get(t.Context(), "/v1/status", nil, &report); err != nil || report.Verdict != hostile {
		t.Errorf("the verdict reads %q, %v; want %q", report.Verdict, err, hostile)
	}
}

// TestARequestThatMakesNoSenseSaysWhatIsWrong.
func TestARequestThatMakesNoSenseSaysWhatIsWrong(t *testing.T) {
	path, _ := serve(t, &carried{err: errors.New("the kernel has them")})
	client := NewClient(path)
	for _, c := range []struct {
		method, path string
		body         any
		want         string
	}{
		{"GET", "/v1/status?service=none", nil, "there is no service default/none"},
		{"GET", "/v1/status?service=/", nil, "must be NAME or NAMESPACE/NAME"},
		{"GET", "/v1/log?n=many", nil, `n="many" is no number`},
		{"GET", "/v1/sessions?client=nobody", nil, `invalid client "nobody"`},
		{"GET", "/v1/sessions?endpoint=:", nil, `invalid endpoint ":"`},
		{"GET", "/v1/sessions", nil, "the kernel has them"},
		{"POST", "/v1/kill", Selection{}, "all clients of a node are not ended at once"},
		{"POST", "/v1/kill", map[string]string{"servcie": "web"}, "servcie"},
		{"POST", "/v1/kill", strings.Repeat("x", 2*maxBody), "the body cannot be read"},
		{"GET", "/v1/wait?endpoint=10.0.0.1&timeout=soon", nil, `invalid timeout "soon"`},
		{"GET", "/v1/wait?endpoint=10.0.0.1&timeout=1s", nil, "the kernel has them"},
		{"POST", "/v1/override", Wish{Service: "web", Endpoint: "10.0.0.1", Word: "drink"}, `invalid word "drink"`},
		{"POST", "/v1/override", Wish{Service: "web", Endpoint: "10.0.0.1", Word: "weight", Weight: 257}, "weight 257 is not between 0 and 256"},
		{"POST", "/v1/override", Wish{Service: "web", Endpoint: "10.0.0.1", Word: "drain", For: "-1s"}, `invalid time "-1s"`},
		{"POST", "/v1/override", Wish{Service: "web", Word: "drain"}, `invalid endpoint ""`},
		{"POST", "/v1/override", Wish{Word: "disable"}, "a node can be drained, and nothing else"},
		{"POST", "/v1/enable", Wish{Service: "web", Endpoint: "10.0.0.1"}, "the kernel has them"},
		{"DELETE", "/v1/status", nil, `there is no "DELETE" "/v1/status"`},
		{"GET", "/v2/status", nil, "another release may have it"},
	} {
		target, err := url.Parse(c.path)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Open(t.Context(), c.method, target.Path, target.Query(), c.body)
		if err == nil {
			answer.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v; want %q", c.method, c.path, err, c.want)
		}
	}
}

// TestWaitAnswersWithZeroOnlyWhenNoClientIsThere.
func TestWaitAnswersWithZeroOnlyWhenNoClientIsThere(t *testing.T) {
	for _, n := range []int64{0, 3} {
		path, _ := serve(t, &carried{left: n})
		var left Left
		if err := NewClient(path).Get(t.Context(), "/v1/wait", url.Values{"endpoint": {"10.0.0.1:80"}, "timeout": {"1ms"}}, &left); err != nil || left.Clients != n {
			t.Errorf("%d clients, %v; want %d", left.Clients, err, n)
		}
	}
}

// arriving are the clients of a node whose first one comes at a time.
type arriving struct {
	carried
	at time.Time
}

func (a *arriving) ClientsOf(registry.Name, registry.AddrMatch) (int64, error) {
	if time.Now().Before(a.at) {
		return 0, nil
	}
	return 1, nil
}

// TestWaitLooksTwiceWithAPauseBetweenThemThoughItsTimeIsOver: a client that has been given the endpoint is counted a moment later.
func TestWaitLooksTwiceWithAPauseBetweenThemThoughItsTimeIsOver(t *testing.T) {
	for _, c := range []struct{ timeout, comes, answers time.Duration }{
		{0, 20 * time.Millisecond, waitLook}, {time.Millisecond, 20 * time.Millisecond, waitLook}, {waitLook - time.Millisecond, waitLook, waitLook},
		{time.Millisecond, time.Hour, waitLook}, {time.Second, time.Hour, waitLook}, {time.Second, 0, time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			n := Node{Proxier: &arriving{at: began.Add(c.comes)}}
			answer, err := n.wait(httptest.NewRecorder(), httptest.NewRequest("GET", "/v1/wait?endpoint=10.0.0.1:80&timeout="+c.timeout.String(), nil))
			want := Left{"10.0.0.1:80", 1}
			if c.comes == time.Hour {
				want.Clients = 0
			}
			if took := time.Since(began); err != nil || answer != want || took != c.answers {
				t.Errorf("timeout %v, a client comes after %v: %+v after %v, %v; want %+v after %v", c.timeout, c.comes, answer, took, err, want, c.answers)
			}
		})
	}
}

func TestWhatWasKilledIsRememberedWithWhoAsked(t *testing.T) {
	path, changes := serve(t, &carried{clients: []traffic.Client{{Client: netip.MustParseAddrPort("10.0.0.7:5000")}, {Client: netip.MustParseAddrPort("10.0.0.8:5000")}}})
	var killed Killed
	if err := NewClient(path).Post(t.Context(), "/v1/kill", Selection{Client: "10.0.0.0/29"}, &killed); err != nil || killed.Ended != 1 {
		t.Errorf("%d were ended, %v; want 1", killed.Ended, err)
	}
	last, _ := changes.Last(1, nil)
	if len(last) != 1 || last[0].UID == nil || *last[0].UID != os.Geteuid() || last[0].Change != "1 of client 10.0.0.0/29 → ended" {
		t.Errorf("remembered: %+v", last)
	}
}

// TestAnOverrideSaysWhoAndUntilWhen, and that a restart forgets it if it cannot be kept. The last endpoint needs force.
func TestAnOverrideSaysWhoAndUntilWhen(t *testing.T) {
	path, changes := serve(t, new(carried))
	client, wish := NewClient(path), Wish{Service: "web", Endpoint: "10.0.0.1", Word: "drain", For: "90s"}
	var done Done
	if err := client.Post(t.Context(), "/v1/override", &wish, &done); err == nil || !strings.Contains(err.Error(), "-force does it all the same") {
		t.Errorf("the last endpoint: %v", err)
	}
	wish.Force = true
	if err := client.Post(t.Context(), "/v1/override", &wish, &done); err != nil || len(done.Overrides) != 1 || !strings.Contains(done.Warning, "the disk is full") {
		t.Fatalf("%+v, %v", done, err)
	}
	if o := done.Overrides[0]; o.Service != "default/web" || o.Endpoint != "10.0.0.1:80" || o.UID != os.Geteuid() || o.Until.Sub(o.Began) != 90*time.Second {
		t.Errorf("%+v", o)
	}
	again := Wish{Service: "web", Endpoint: "10.0.0.1", Word: "weight", Weight: 5, Force: true}
	if err := client.Post(t.Context(), "/v1/override", &again, &done); err != nil {
		t.Fatal(err)
	}
	if err := client.Post(t.Context(), "/v1/enable", &wish, &done); err != nil || !strings.HasPrefix(done.Warning, "a restart will put it in force again: the disk is full") {
		t.Errorf("%v; warning %q", err, done.Warning)
	}
	last, _ := changes.Last(3, nil)
	replaced := fmt.Sprintf("10.0.0.1:80 is drained (uid %d) → 10.0.0.1:80 has weight 5 for 1h0m0s", os.Geteuid())
	if len(last) != 3 || last[0].Change != "none → 10.0.0.1:80 is drained for 1m30s" || last[1].Change != replaced || last[2].Change != "10.0.0.1:80 has weight 5 → none" {
		t.Errorf("remembered: %+v", last)
	}
}

// TestARestoredOverrideNeverLastsLongerThanItWasTo, however the clock was set meanwhile.
func TestARestoredOverrideNeverLastsLongerThanItWasTo(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		began time.Duration // before now, by the clock on the wall
		left  time.Duration // at most; negative: it is over
	}{{0, time.Hour}, {30 * time.Minute, 30 * time.Minute}, {2 * time.Hour, -1}, {-24 * time.Hour, time.Hour}} {
		d := Override{Service: "default/web", Endpoint: "10.0.0.1:80", Word: "drain", Began: now.Add(-c.began), Until: now.Add(-c.began + time.Hour)}
		o, ok, err := d.Parse()
		if left := time.Until(o.Until); err != nil || ok != (c.left > 0) || ok && (left > c.left || left < c.left-time.Minute) {
			t.Errorf("began %v ago: in force %t for %v, %v; want %v", c.began, ok, left, err, c.left)
		}
		again, stays, err := NewOverrides([]balance.Override{o})[0].Parse() // by the next process
		if lost := o.Until.Sub(again.Until); err != nil || stays != ok || lost > time.Minute {
			t.Errorf("began %v ago: a second process has it in force %t, %v less, %v", c.began, stays, lost, err)
		}
	}
}

// TestConnectionsThatSayNothingKeepNobodyFromAnAnswer: ten thousand of them, of the same user, that stop before, in and after their headers.
func TestConnectionsThatSayNothingKeepNobodyFromAnAnswer(t *testing.T) {
	path, _ := serve(t, &carried{})
	halves := []string{"", "GET /v1/sta", "GET /v1/status HTTP/1.1\r\nHost: node\r\n", "POST /v1/kill HTTP/1.1\r\nHost: node\r\nContent-Length: 9\r\n\r\n{"}
	for i := range 10_000 {
		conn, err := dialUnix(t.Context(), path)
		if err != nil {
			t.Fatal(i, err)
		}
		defer conn.Close()
		io.WriteString(conn, halves[i%len(halves)]) // may be closed already
	}
	var report statuspage.Report
	if err := NewClient(path).Get(t.Context(), "/v1/status", nil, &report); err != nil {
		t.Errorf("beside them: %v", err)
	}
}

// TestWhatABrowserCouldSendIsRefused, by whatever forwarder it comes, and does nothing. Other programs are answered, whichever host they name for a socket.
func TestWhatABrowserCouldSendIsRefused(t *testing.T) {
	path, changes := serve(t, &carried{clients: []traffic.Client{{Client: netip.MustParseAddrPort("10.0.0.7:5000")}}})
	const status, kill = "GET /v1/status HTTP/1.1\r\n", "POST /v1/kill HTTP/1.1\r\nContent-Length: 21\r\n"
	for _, c := range []struct {
		request, headers string
		want             int
	}{
		{status, "Host: node\r\n", 200},
		{status, "Host: localhost\r\n", 200},
		{status, "Host: LocalHost\r\n", 200},
		{status, "Host:\r\n", 200},
		{"GET /v1/status HTTP/1.0\r\n", "", 200},
		{status, "Host: evil.example\r\n", 403},
		{status, "Host: localhost:8080\r\n", 403}, // a browser's, by a forwarder to the socket
		{status, "Host: 127.0.0.1\r\n", 403},
		{status, "Host: node.\r\n", 403},
		{"GET http://evil.example/v1/status HTTP/1.1\r\n", "Host: node\r\n", 403},
		{"OPTIONS /v1/kill HTTP/1.1\r\n", "Host: node\r\nOrigin: http://evil.example\r\nAccess-Control-Request-Method: POST\r\n", 403},
		{"OPTIONS * HTTP/1.1\r\n", "Host: evil.example\r\n", 403},
		{status, "Host: node\r\nSec-Fetch-Site: same-origin\r\n", 403},
		{status, "Host: node\r\nOrigin: null\r\n", 403},
		{status, "Host: node\r\norigin:\r\n", 403},
		{kill, "Host: node\r\nOrigin: http://node\r\n", 403},
		{kill, "Host: localhost\r\nOrigin: http://localhost\r\n", 403},
		{kill, "Host: evil.example\r\n", 403},
		{kill, "Host: localhost\r\n", 200},
	} {
		conn, err := dialUnix(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, c.request+c.headers+"Connection: close\r\n\r\n"+`{"client":"10.0.0.7"}`)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != c.want {
			t.Errorf("%q: %v, %v; want status %d", c.request+c.headers, answer, err, c.want)
		} else if answer.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%q: the page may read the answer", c.request+c.headers)
		}
		conn.Close()
		if _, ever := changes.Last(1, nil); (ever > 0) != (c.want == 200 && c.request == kill) {
			t.Errorf("%q: %d changes", c.request+c.headers, ever)
		}
	}
}

// TestAnotherUserIsNotAnswered, even if the modes of directory and socket let that user connect.
func TestAnotherUserIsNotAnswered(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to be another user")
	}
	path, _ := serve(t, &carried{})
	asNobody := func() error {
		result := make(chan error)
		go func() {
			runtime.LockOSThread() // and never unlocked: the thread ends with this goroutine
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
				result <- errno
				return
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			if err == nil {
				defer unix.Close(fd)
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
			}
			if err == nil {
				_, err = unix.Write(fd, []byte("GET /v1/status HTTP/1.1\r\nHost: node\r\n\r\n"))
			}
			n := 0
			if err == nil || errors.Is(err, unix.EPIPE) {
				n, err = unix.Read(fd, make([]byte, 1))
			}
			if n > 0 {
				result <- nil
				return
			}
			result <- errors.Join(errors.New("not answered"), err)
		}()
		return <-result
	}
	if err := asNobody(); !errors.Is(err, unix.EACCES) {
		t.Errorf("with its modes: %v; want %v", err, unix.EACCES)
	}
	if err := errors.Join(os.Chmod(filepath.Dir(path), 0o755), os.Chmod(path, 0o666)); err != nil {
		t.Fatal(err)
	}
	if err := asNobody(); err == nil {
		t.Error("another user is answered")
	}
	response, err := NewClient(path).http.Get("http://node/v1/status")
	if err != nil || response.StatusCode != http.StatusOK {
		t.Errorf("the owner is not: %v", err)
	} else {
		response.Body.Close()
	}
}

// TestDisableEndsClientsThatConnectMeanwhileAlsoWhereTheKernelHasSome: those of userspace are counted, and the answer says that there may be others.
func TestDisableEndsClientsThatConnectMeanwhileAlsoWhereTheKernelHasSome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &connecting{left: 3}
		n := Node{Proxier: p, History: new(history.History), Save: func() error { return nil }}
		body := strings.NewReader(`{"service": "web", "endpoint": "10.0.0.1", "word": "disable", "force": true}`)
		answer, err := n.override(httptest.NewRequest("POST", "/v1/override", body))
		if done, ok := answer.(Done); err != nil || !ok || done.Left != 0 || !strings.Contains(done.Warning, "the kernel has them") {
			t.Errorf("%+v, %v; want no client left, and a warning", answer, err)
		}
		if p.left != 0 {
			t.Errorf("%d clients that were connecting are left", p.left)
		}
	})
}

// connecting are the clients of a node, one of which is connected at each look, and ended by it.
type connecting struct {
	carried
	left int64
}

func (c *connecting) Clients(context.Context, traffic.Selection, bool) iter.Seq2[[]traffic.Client, error] {
	return func(func([]traffic.Client, error) bool) { c.left-- }
}

func (c *connecting) ClientsOf(registry.Name, registry.AddrMatch) (int64, error) {
	return c.left, errors.New("the kernel has them")
}
