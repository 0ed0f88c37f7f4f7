package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/records"
	"kubeproxy/internal/backoff"
	"kubeproxy/registry/decode"
)

func isList(req *etcdserverpb.RangeRequest) bool {
	return string(req.RangeEnd) == string(prefixEnd) && !req.KeysOnly
}

func TestAListIsOneSnapshotHoweverManyPagesItHas(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	for i := range 10 {
		put(t, c, spec(fmt.Sprintf("s%d", i)), port(100))
	}
	m := newMiddleman(t, c)
	pages := 0
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			if isList(req) {
				// Behind the reader's back and before its eyes: all keys change before each page.
				pages++
				for i := range 10 {
					put(t, c, spec(fmt.Sprintf("s%d", i)), port(100+pages))
				}
			}
			return etcd(req)
		}
	})
	f := follow(t, quick(m.url))
	f.awaitRevision(t, 1)
	first := f.past()[0]
	defer func() {
		for _, u := range f.past()[1:] {
			if u.Revision <= first.Revision {
				t.Errorf("an update at revision %d, which was in the list of revision %d", u.Revision, first.Revision)
			}
		}
	}()
	if !first.Set || len(first.Services) != 10 {
		t.Fatalf("first update %+v; want a SET of 10", first)
	}
	for _, s := range first.Services {
		if s.Value.Ports[0].Number != 101 {
			t.Errorf("%v has port %d; want 101 as in the first page's revision", s.Name, s.Value.Ports[0].Number)
		}
	}
	var want string
	for i := range 10 {
		want += fmt.Sprintf("s%d:104 ", i)
	}
	f.await(t, strings.TrimSuffix(want, " ")+" | ") // and the watch tells the rest
	m.hook(func(*middleman) {
		if pages != 4 {
			t.Errorf("%d pages; want 4 of 3 keys", pages)
		}
	})
}

func TestACompactionBetweenTwoPagesStartsTheListAgain(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	for i := range 7 {
		put(t, c, spec(fmt.Sprintf("s%d", i)), port(1))
	}
	m := newMiddleman(t, c)
	var limits []int64
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			if isList(req) {
				limits = append(limits, req.Limit)
				revision := put(t, c, spec("busy"), port(2))
				if _, err := c.Compact(t.Context(), revision); err != nil {
					t.Error(err)
				}
			}
			return etcd(req)
		}
	})
	f := follow(t, quick(m.url))
	f.await(t, "busy:2 s0:1 s1:1 s2:1 s3:1 s4:1 s5:1 s6:1 | ")
	// Pages of 3, 6, and 12, which hold everything: it ends however busy etcd is.
	m.hook(func(*middleman) {
		if got, want := fmt.Sprint(limits), "[3 3 6 6 12]"; got != want {
			t.Errorf("limits %s; want %s", got, want)
		}
	})
}

// Etcd counts the keys of a list in its first page, and room is made for them before they are there.
func TestAListDoesNotRelyOnTheCountThatCameWithIt(t *testing.T) {
	for _, count := range []int64{-1, 0, math.MinInt64, math.MaxInt64} {
		etcd := etcdtest.StartProcess(t)
		c := etcd.Client(t)
		put(t, c, spec("a"), port(1), spec("b"), port(2))
		m := newMiddleman(t, c)
		m.hook(func(m *middleman) {
			m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
				resp, err := etcd(req)
				if err == nil {
					resp.Count = count
				}
				return resp, err
			}
		})
		f := follow(t, quick(m.url))
		f.await(t, "a:1 b:2 | ")
		f.resync(t)
		f.await(t, "a:1 b:2 | ")
	}
}

func TestAWeakReadNeverTakesUsBack(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	past := put(t, c, spec("a"), port(1))
	put(t, c, spec("a"), port(2), spec("b"), port(2))

	// This member lags: it answers weak reads out of its past.
	m := newMiddleman(t, c)
	var weak, strong int
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			switch {
			case !isList(req):
				return etcd(req)
			case !req.Serializable:
				strong++
				return etcd(req)
			}
			weak++
			if req.Revision > past {
				return nil, rpctypes.ErrGRPCFutureRev
			}
			req.Revision = past
			resp, err := etcd(req)
			if err == nil {
				resp.Header.Revision = past
			}
			return resp, err
		}
	})
	cfg := quick(m.url)
	cfg.Weak = true
	f := follow(t, cfg)
	f.await(t, "a:2 b:2 | ")
	m.hook(func(*middleman) {
		if weak != 1 || strong == 0 {
			t.Errorf("%d weak and %d strong reads; want one weak one, and its answer thrown away", weak, strong)
		}
	})
	m.cancel("for the test", 0)
	f.awaitStatus(t, "a second session", func(st config.Status) bool { return st.Sessions == 2 })
	f.await(t, "a:2 b:2 | ")

	// A resync reads at a revision that this member has not reached.
	m.hook(func(*middleman) { weak = 0 })
	f.resync(t)
	f.await(t, "a:2 b:2 | ")
	m.hook(func(m *middleman) {
		if weak != 1 {
			t.Errorf("%d weak reads; want the resync to have asked weakly first", weak)
		}
		m.onRange = nil // it has caught up
	})
	for _, u := range f.past() {
		if u.Revision < past+2 {
			t.Errorf("an update went back to revision %d", u.Revision)
		}
	}
	f.awaitRevision(t, put(t, c, spec("b"), port(3)))
	f.resync(t)
	f.await(t, "a:2 b:3 | ")
}

func TestAListThatIsOlderThanTheWatchIsRefused(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	past := put(t, c, spec("a"), port(1))
	put(t, c, spec("a"), port(2))
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) { // what answers the lists has lost the last revision
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			req.Revision = past
			resp, err := etcd(req)
			if err == nil {
				resp.Header.Revision = past
			}
			return resp, err
		}
	})
	f := follow(t, quick(m.url))
	f.awaitStatus(t, "a reason", func(st config.Status) bool { return strings.Contains(st.Reason, "went back from revision 3 to 2") })
	if got := f.text(); got != "nothing yet" {
		t.Errorf("sent %q, which the watch would never bring up to date", got)
	}
	m.hook(func(m *middleman) { m.onRange = nil })
	f.await(t, "a:2 | ")
}

func TestAFailureOnAKeptConnectionCountsOnlyIfItHappensAgain(t *testing.T) {
	cfg, err := quick("http://127.0.0.1:1").Complete() // nothing is sent there
	if err != nil {
		t.Fatal(err)
	}
	r := newReader(&dialer{cfg, etcdconfig.NewNames(nil)})
	defer r.close()
	failure := errors.New("for the test")
	for _, test := range []struct {
		name   string
		errors []error // of the attempts that are made
		want   error
		fresh  bool // the next question begins with a new connection
	}{
		{"a fresh connection fails", []error{failure}, failure, true},
		{"a fresh connection works", []error{nil}, nil, false},
		{"the kept one works", []error{nil}, nil, false},
		{"the kept one fails and a fresh one works", []error{failure, nil}, nil, false},
		{"both fail", []error{failure, failure}, failure, true},
		{"compacted is an answer", []error{rpctypes.ErrCompacted}, rpctypes.ErrCompacted, false},
		{"a future revision is an answer", []error{rpctypes.ErrFutureRev}, rpctypes.ErrFutureRev, false},
	} {
		attempts := 0
		r.ask(t.Context(), patience, func(context.Context, *client, func()) (listing, error) {
			attempts++
			return listing{}, test.errors[attempts-1]
		})
		if a := <-r.answers; a.err != test.want || attempts != len(test.errors) || (r.client == nil) != test.fresh {
			t.Errorf("%s: %v after %d attempts, and a connection is kept: %v", test.name, a.err, attempts, r.client != nil)
		}
	}
}

func TestEachPartOfAnAnswerHasTimeOfItsOwn(t *testing.T) {
	cfg, err := quick("http://127.0.0.1:1").Complete() // nothing is sent there
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&dialer{cfg, etcdconfig.NewNames(nil)}).dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	const each, parts = 10 * time.Second, 100
	for _, test := range []struct {
		name  string
		takes time.Duration
		want  error
		parts int
	}{
		{"all of them together take longer", each - time.Nanosecond, nil, parts},
		{"one of them takes longer", each + time.Nanosecond, context.Canceled, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newReader(&dialer{cfg, etcdconfig.NewNames(nil)})
				r.client = c // there is no network in this bubble
				came := 0
				r.ask(t.Context(), each, func(ctx context.Context, _ *client, more func()) (listing, error) {
					for came < parts {
						backoff.Sleep(ctx, test.takes)
						if ctx.Err() != nil {
							return listing{}, ctx.Err()
						}
						came++
						more()
					}
					return listing{}, nil
				})
				if a := <-r.answers; !errors.Is(a.err, test.want) || came != test.parts {
					t.Errorf("%v after %d parts; want %v after %d", a.err, came, test.want, test.parts)
				}
			})
		})
	}
}

func TestAPageIsAPart(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	for i := range 10 {
		put(t, c, spec(fmt.Sprintf("s%d", i)), port(100))
	}
	cfg, err := quick(etcd.URL()).Complete()
	if err != nil {
		t.Fatal(err)
	}
	own, err := (&dialer{cfg, etcdconfig.NewNames(nil)}).dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer own.close()
	parts := 0
	if l, err := list(0, false, 3, false, nil, records.New(decode.Decoder{}).NewList)(t.Context(), own, func() { parts++ }); err != nil || l.list.Len() != 10 || parts != 4 {
		t.Errorf("%d keys in %d parts, %v; want 10 in 4", l.list.Len(), parts, err)
	}
}

// On a slow etcd a page of 500 large values may take longer than the deadline each time.
func TestPagesGetSmallerUntilTheyComeInTime(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	for i := range 9 {
		put(t, c, spec(fmt.Sprint("a", i)), port(1+i))
	}
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			if req.Limit > 2 {
				return nil, status.Error(codes.DeadlineExceeded, "")
			}
			return etcd(req)
		}
	})
	cfg := quick(m.url)
	cfg.PageSize = 16
	f := follow(t, cfg)
	f.awaitStatus(t, "nine services", func(st config.Status) bool { return st.Services == 9 })
	f.stop()
	if f.source.page != 4 { // 2 was in time: the next list tries more
		t.Errorf("the next page would have %d keys", f.source.page)
	}
}

// A page of 500 values of 1.4 MB would take 700 MB.
func TestAPageThatIsTooLargeIsAskedForAgainWithFewerKeys(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	for i := range 25 {
		put(t, c, spec(fmt.Sprintf("a%02d", i)), strings.Repeat("x", 1_400_000))
	}
	put(t, c, spec("z"), port(1))
	cfg := quick(etcd.URL())
	cfg.PageSize = 500
	f := follow(t, cfg)
	f.await(t, "z:1 | ")
	f.awaitStatus(t, "25 rejected", func(st config.Status) bool { return st.Rejected == 25 }) // all large ones
}

func TestAListThatDoesNotEndIsGivenUp(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	put(t, c, spec("a"), port(1))
	m := newMiddleman(t, c)
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			first := &etcdserverpb.RangeRequest{Key: prefixStart, RangeEnd: prefixEnd}
			resp, err := etcd(first)
			if err == nil {
				resp.More = true
			}
			return resp, err
		}
	})
	f := follow(t, quick(m.url))
	f.awaitStatus(t, "a reason", func(st config.Status) bool {
		return st.Cause == Unable.String() && strings.Contains(st.Reason, "this is no answer of an etcd")
	})
}

// A slow network: a megabyte takes ten times as long as may pass without progress.
func TestAListMayTakeAsLongAsItsBytesKeepComing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := quick("http://127.0.0.1:1").Complete()
		if err != nil {
			t.Fatal(err)
		}
		r := newReader(&dialer{cfg, etcdconfig.NewNames(nil)}) // it connects to nothing
		defer r.close()
		ctx := t.Context()
		const timeout = 200 * time.Millisecond
		r.ask(ctx, timeout, func(ctx context.Context, _ *client, _ func()) (listing, error) {
			for range 20 {
				select {
				case <-time.After(timeout / 4):
					r.received.Add(minProgress / 2)
				case <-ctx.Done():
					return listing{}, explain(ctx, ctx.Err())
				}
			}
			return listing{revision: 5}, nil
		})
		if a := <-r.answers; a.err != nil || a.revision != 5 {
			t.Errorf("with bytes that keep coming: %v", a.err)
		}
		r.busy = false
		r.ask(ctx, timeout, func(ctx context.Context, _ *client, _ func()) (listing, error) {
			for { // pings
				select {
				case <-time.After(timeout / 4):
					r.received.Add(17)
				case <-ctx.Done():
					return listing{}, explain(ctx, ctx.Err())
				}
			}
		})
		if a := <-r.answers; causeOf(a.err) != Silent {
			t.Errorf("with nothing but pings: %v", a.err)
		}
	})
}
