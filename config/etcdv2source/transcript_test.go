package etcdv2source

import (
	"bufio"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"kubeproxy/config/etcdconfig"
)

// An exchange is one request to an etcd 2.3.8 and its answer, byte for byte.
type exchange struct {
	title, request string // the first line of the request
	answer         string
	closes         bool // etcd ended the connection
}

// transcript reads what was recorded.
func transcript(t *testing.T) []exchange {
	t.Helper()
	text, err := os.ReadFile("testdata/etcd-2.3.8.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []exchange
	for _, part := range strings.Split("\n"+string(text), "\n### ")[1:] {
		var e exchange
		e.title, part, _ = strings.Cut(part, "\n")
		body, end, _ := strings.Cut(part, "\n== ")
		e.closes = strings.HasPrefix(end, "EOF")
		inHead, lines := true, strings.Split(body, "\n")
		var out strings.Builder
		for _, line := range lines {
			switch {
			case strings.HasPrefix(line, ">> "):
				if e.request == "" {
					e.request = line[len(">> "):]
				}
			case strings.HasPrefix(line, "<< ["):
				inHead = false
			case !inHead:
				if strings.HasSuffix(line, `\r`) {
					out.WriteString(strings.TrimSuffix(line, `\r`) + "\r\n")
				} else {
					out.WriteString(line + "\n")
				}
			}
		}
		e.answer = out.String()
		all = append(all, e)
	}
	if len(all) < 20 {
		t.Fatalf("%d exchanges", len(all))
	}
	return all
}

// replay finds an exchange by its title, and returns a connection to a server that answers so.
func replay(t *testing.T, title string) *conn {
	t.Helper()
	for _, e := range transcript(t) {
		if strings.HasPrefix(e.title, title) {
			return e.serve(t)
		}
	}
	t.Fatalf("there is no exchange %q", title)
	return nil
}

var contentLength = regexp.MustCompile(`Content-Length: (\d+)`)

func (e exchange) serve(t *testing.T) *conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		in := bufio.NewReader(c)
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			if line == "\r\n" {
				break
			}
		}
		answer := e.answer
		if m := contentLength.FindStringSubmatch(answer); m != nil { // whether the last newline is etcd's or the record's
			length, _ := strconv.Atoi(m[1])
			head, body, _ := strings.Cut(answer, "\r\n\r\n")
			answer = head + "\r\n\r\n" + body[:min(length, len(body))]
		}
		if _, err := c.Write([]byte(answer)); err != nil {
			t.Error(err)
		}
		if !e.closes {
			_, _ = in.ReadByte() // until the client goes
		}
	}()
	cfg, err := etcdconfig.Config{Endpoints: []string{l.Addr().String()}, RequestTimeout: 5 * time.Second}.Complete()
	if err != nil {
		t.Fatal(err)
	}
	d := &dialer{cfg, etcdconfig.NewNames(nil)}
	c := d.open(t.Context(), cfg.Endpoints[0])
	t.Cleanup(func() {
		l.Close()
		c.close()
		<-done
		d.names.Close()
	})
	return c
}

func TestListsOfARealEtcdAreRead(t *testing.T) {
	for _, test := range []struct {
		title string
		index int64
		keys  string
	}{
		{"list when there is nothing yet", 5, ""},
		{"list everything, at one index, by quorum", 8, "endpoints/web specs/team/api specs/web"},
		{"list after it", 1066, ""},
	} {
		l, err := replay(t, test.title).list(t.Context(), true)
		var keys []string
		for _, n := range l.nodes {
			keys = append(keys, strings.TrimPrefix(n.Key, root+"/"))
		}
		if err != nil || l.index != test.index || strings.Join(keys, " ") != test.keys || l.cluster != "a9efa5de7f8fc772" {
			t.Errorf("%s: %v, index %d, %v, cluster %s", test.title, err, l.index, keys, l.cluster)
		}
	}
}

// Whatever etcd is about to say, it is not waited for without end.
func TestAnAnswerThatStopsHalfWayIsGivenUp(t *testing.T) {
	for _, title := range []string{"list everything, at one index, by quorum", "list after it", "version"} {
		for _, e := range transcript(t) {
			if !strings.HasPrefix(e.title, title) {
				continue
			}
			e.answer = e.answer[:len(e.answer)-10]
			c := e.serve(t)
			c.dialer.RequestTimeout = 50 * time.Millisecond
			var err error
			if title == "version" {
				_, err = c.version(t.Context())
			} else {
				_, err = c.list(t.Context(), true)
			}
			if err == nil || causeOf(err) != silent {
				t.Errorf("%s: %v", title, err)
			}
		}
	}
}

func TestPollsOfARealEtcdAreRead(t *testing.T) {
	for _, test := range []struct {
		title  string
		from   int64
		head   int64
		action string
		index  int64
		whole  bool
	}{
		{"watch (long poll) from index+1", 9, 8, "set", 9, false},
		{"watch from an index of the past", 9, 13, "set", 9, false},
	} {
		p, err := replay(t, test.title).wait(t.Context(), test.from)
		if err != nil || p.index != test.head {
			t.Errorf("%s: %v, index %d", test.title, err, p.index)
			continue
		}
		ev, err := p.event()
		if err != nil || ev.Action != test.action || ev.Node.ModifiedIndex != test.index || ev.wholeDirectory() != test.whole {
			t.Errorf("%s: %v, %+v", test.title, err, ev)
		}
	}
	if _, err := replay(t, "watch from an index whose event").wait(t.Context(), 9); err != errCleared {
		t.Errorf("history cleared: %v", err)
	}
	p, err := replay(t, "watch from now; etcd gets SIGKILL").wait(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	if ev, err := p.event(); err == nil || causeOf(err) != broken {
		t.Errorf("etcd is killed: %v, %+v", err, ev)
	}
}

func TestErrorsOfARealEtcdHaveTheirCause(t *testing.T) {
	for title, want := range map[string]cause{
		"no leader: list with quorum":    leaderless,
		"auth on: without a password":    refused,
		"auth on: with a wrong password": refused,
	} {
		if _, err := replay(t, title).list(t.Context(), true); err == nil || causeOf(err) != want {
			t.Errorf("%s: %v", title, err)
		}
	}
	p, err := replay(t, "watch from the far future").wait(t.Context(), 99999)
	if err == nil || causeOf(err) != wentBack {
		t.Errorf("an index of the future: %v, %+v", err, p)
	}
	if v, err := replay(t, "version").version(t.Context()); err != nil || v != "2.3.8" {
		t.Errorf("%s, %v", v, err)
	}
}

func TestVersionsOfEveryEtcdAreUnderstood(t *testing.T) {
	for text, want := range map[string]string{
		`{"etcdserver":"2.3.8","etcdcluster":"2.3.0"}`:     "2.3.8",
		`{"etcdserver":"3.6.1","etcdcluster":"3.6.0"}`:     "3.6.1",
		`{"releaseVersion":"2.0.5","internalVersion":"2"}`: "2.0.5",
		"etcd 0.4.6":             "0.4.6",
		"etcd 0.4.6\n":           "0.4.6",
		"":                       "",
		"404 page not found":     "",
		`{}`:                     "",
		`{"etcdserver":"x"}`:     "",
		`{"etcdserver":"2.3\n"}`: "",
	} {
		if got, err := parseVersion([]byte(text)); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}
