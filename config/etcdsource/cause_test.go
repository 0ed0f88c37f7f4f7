package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
)

func TestEachErrorHasItsCause(t *testing.T) {
	for _, test := range []struct {
		err  error // of a call
		want Cause
		text string
	}{
		{status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:1: connect: connection refused"`),
			Broken, "dial tcp 127.0.0.1:1: connect: connection refused"},
		{status.Error(codes.Unavailable, `last connection error: connection error: desc = "transport: authentication handshake failed: tls: bad"`),
			Insecure, "authentication handshake failed: tls: bad"},
		{status.Error(codes.Unavailable, "error reading from server: EOF"), Broken, "error reading from server: EOF"},
		{status.Error(codes.Unauthenticated, "by somebody in between"), Refused, "by somebody in between"},
		{status.Error(codes.DeadlineExceeded, "late"), Silent, "no answer in time"},
		{status.Error(codes.Unimplemented, "unknown service"), Unable, "unknown service"},
		{rpctypes.ErrGRPCAuthFailed, Refused, "etcdserver: authentication failed, invalid user ID or password"},
		{rpctypes.ErrGRPCInvalidAuthToken, Refused, "etcdserver: invalid auth token"},
		{rpctypes.ErrGRPCPermissionDenied, Refused, "etcdserver: permission denied"},
		{rpctypes.ErrGRPCUserEmpty, Refused, "etcdserver: user name is empty"},
		{rpctypes.ErrGRPCNoLeader, Leaderless, "etcdserver: no leader"},
		{rpctypes.ErrGRPCTimeout, Leaderless, "etcdserver: request timed out"},
		{rpctypes.ErrGRPCStopped, Broken, "etcdserver: server stopped"},
		{rpctypes.ErrGRPCCorrupt, Unable, "etcdserver: corrupt cluster"},
		{errors.New("whatever else"), Broken, "whatever else"},
	} {
		err := explain(t.Context(), test.err)
		if cause := causeOf(fmt.Errorf("list: %w", err)); cause != test.want || err.Error() != test.text {
			t.Errorf("%v: %v, %q; want %v, %q", test.err, cause, err, test.want, test.text)
		}
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 0, errors.New("no answer"))
	defer cancel()
	if err := explain(ctx, status.Error(codes.Unavailable, "x")); causeOf(err) != Silent || err.Error() != "no answer" {
		t.Errorf("after a deadline of ours: %v, %v; want silent, and ours", causeOf(err), err)
	}
	for reason, want := range map[string]Cause{
		"rpc error: code = PermissionDenied desc = etcdserver: permission denied": Refused,
		"etcdserver: no leader":                                  Leaderless,
		"etcdserver: mvcc: required revision has been compacted": Cancelled,
		"for the test": Cancelled,
		"":             Cancelled,
	} {
		if got, bare := causeOfCancel(reason); got != want || strings.Contains(bare, "desc") {
			t.Errorf("cancelled with %q: %v, %q; want %v", reason, got, bare, want)
		}
	}
}

// ended is what a status counts, by cause.
func ended(st config.Status) (counts [NumCauses]uint64) {
	for i, end := range st.Ends {
		if end.Cause == Cause(i).String() {
			counts[i] = end.Count
		}
	}
	return counts
}

func TestEndedSessionsAreCountedByCause(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	m := newMiddleman(t, c)
	f := follow(t, quick(m.url))
	ends := []struct {
		cause Cause
		end   func()
	}{
		{Cancelled, func() { m.cancel("for the test", 0) }},
		{Compacted, func() { m.cancel("", 17) }},
		{Refused, func() { m.cancel("etcdserver: permission denied", 0) }},
		{Compacted, func() { m.cancel("", 17) }},
	}
	var want [NumCauses]uint64
	for i, e := range ends {
		f.awaitStatus(t, "one more session", func(st config.Status) bool { return st.Sessions == uint64(i+1) })
		e.end()
		want[e.cause]++
	}
	st := f.awaitStatus(t, "the last session", func(st config.Status) bool { return st.Sessions == uint64(len(ends)+1) })
	if ended(st) != want {
		t.Errorf("ended: %v; want %v", ended(st), want)
	}

	// What never came to stand has not ended either. It is an attempt.
	etcd.Kill()
	want[Broken]++
	st = f.awaitStatus(t, "several attempts", func(st config.Status) bool { return st.Attempts > 3 })
	if ended(st) != want || st.Connected || st.Cause != Broken.String() {
		t.Errorf("%+v; want the sessions before to have ended as %v, and no other", st, want)
	}
	etcd.Start(t)
	f.awaitStatus(t, "a session, and no attempts", func(st config.Status) bool { return st.Connected && st.Attempts == 0 })
}

func TestEveryCauseHasItsWords(t *testing.T) {
	seen := make(map[string]bool)
	for cause := range NumCauses {
		if name := cause.String(); name == "" || seen[name] || causes[cause].line == "" {
			t.Errorf("cause %d is called %q, which is nothing or taken, and said as %q", cause, name, causes[cause].line)
		}
		seen[cause.String()] = true
	}
}

// What an operator does wrong most often, and what the status says about it.
func TestTheReasonSaysWhatToDo(t *testing.T) {
	ca := etcdtest.NewCA(t)
	secure, _ := startTLS(t, ca, ca)
	plain := etcdtest.StartProcess(t)
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	cert, key := ca.Issue(t, "kube-proxy")
	for _, test := range []struct {
		name   string
		cfg    Config
		want   Cause
		advice string
	}{
		{"http to an etcd with TLS", quick("http://" + secure.Addr()), Insecure, "its URL has to begin with https://"},
		{"https to an etcd without", mustTLS(t, etcdconfig.TLSFiles{CA: []string{ca.File}}, "https://"+plain.Addr()), Insecure, "its URL has to begin with http://"},
		{"another HTTP server", quick(web.URL), Unable, "an etcd 2 or another HTTP server answers at this address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := follow(t, test.cfg)
			st := f.awaitStatus(t, test.advice, func(st config.Status) bool { return strings.Contains(st.Reason, test.advice) })
			if st.Cause != test.want.String() {
				t.Errorf("the cause of %q is %v; want %v", st.Reason, st.Cause, test.want)
			}
		})
	}
	cfg, err := mustTLS(t, etcdconfig.TLSFiles{CA: []string{ca.File}, Cert: cert, Key: key}, "https://127.0.0.1:1").Complete()
	if err != nil {
		t.Fatal(err)
	}
	if advice := (&dialer{Config: cfg}).advice(Refused, "etcdserver: permission denied"); !strings.Contains(advice, `"kube-proxy", for the user; etcd needs that user, with a role that may read /registry/services/`) {
		t.Errorf("a certificate whose name is no user of etcd: %q", advice)
	}
}

// A process that is stopped has its connections accepted by the kernel, and says nothing. Nothing is wrong with its URL.
func TestAServerThatIsHungIsCalledSilent(t *testing.T) {
	hung, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hung.Close() })
	ca := etcdtest.NewCA(t)
	for i := range 4 {
		request, encrypted := 100*time.Millisecond, i > 1 // the request is given up first
		if i%2 > 0 {
			request = 30 * time.Second // the connection is
		}
		cfg := quick("http://" + hung.Addr().String())
		if encrypted {
			cfg = mustTLS(t, etcdconfig.TLSFiles{CA: []string{ca.File}}, "https://"+hung.Addr().String())
		}
		cfg.DialTimeout, cfg.RequestTimeout = 200*time.Millisecond, request
		f := follow(t, cfg)
		st := f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" })
		if st.Cause != Silent.String() || strings.Contains(st.Reason, "TLS") || strings.Contains(st.Reason, "hung up") {
			t.Errorf("cause %q: %s; want silence", st.Cause, st.Reason)
		}
	}
}
