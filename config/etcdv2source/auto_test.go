package etcdv2source

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry"
)

// A fake is a source that only runs.
type fake struct {
	config.Source
	runs  int
	began time.Time
	ready bool
	from  time.Time     // when it is ready, if it ever is
	has   config.Status // what it has read then
}

func (f *fake) Run(ctx context.Context, _ chan<- registry.Update) error {
	f.runs++
	f.began = time.Now()
	<-ctx.Done()
	return nil
}

func (f *fake) Status() config.Status {
	if !f.ready || time.Now().Before(f.from) {
		return config.Status{}
	}
	st := f.has
	st.Ready = true
	return st
}

func TestTheVersionOfTheMembersDecides(t *testing.T) {
	const never = -1
	after := func(d time.Duration, version string) func(context.Context, time.Time) (string, error) {
		return func(ctx context.Context, began time.Time) (string, error) {
			select {
			case <-time.After(time.Until(began.Add(d))):
				return version, nil
			case <-ctx.Done():
				return "", ctx.Err()
			}
		}
	}
	at := func(version string) func(context.Context, time.Time) (string, error) { return after(0, version) }
	gone := func(context.Context, time.Time) (string, error) { return "", errors.New("gone") }
	for _, test := range []struct {
		name    string
		members []func(context.Context, time.Time) (string, error)
		ready   bool          // the v3 source has read something
		three   time.Duration // when it begins; never
		two     time.Duration
	}{
		{"an etcd 3", []func(context.Context, time.Time) (string, error){at("3.6.1")}, false, 0, never},
		{"an etcd 2", []func(context.Context, time.Time) (string, error){at("2.3.8")}, false, never, 0},
		{"an etcd 0.4", []func(context.Context, time.Time) (string, error){at("0.4.6")}, false, never, 0},
		{"nothing", []func(context.Context, time.Time) (string, error){gone, gone}, false, versionTimeout, never},
		{"one old machine among silent ones", []func(context.Context, time.Time) (string, error){at("2.3.8"), gone, gone}, false, versionTimeout, ignoreSilentAfter + askInterval},
		{"an old machine beside a new one", []func(context.Context, time.Time) (string, error){at("2.3.8"), at("3.6.1"), at("2.3.8")}, false, 0, never},
		{"a majority of old ones", []func(context.Context, time.Time) (string, error){at("2.3.8"), gone, at("2.3.7")}, false, never, 0},
		{"an etcd 2 that comes later", []func(context.Context, time.Time) (string, error){after(5*time.Second, "2.3.8")}, false, versionTimeout, 5 * time.Second},
		{"an etcd 3 that is slow", []func(context.Context, time.Time) (string, error){after(time.Second, "3.6.1")}, false, versionTimeout, never},
		{"one that says 2 and serves 3", []func(context.Context, time.Time) (string, error){after(time.Second, "2.3.8")}, true, versionTimeout, never},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := recordstest.LogSince(t)
			synctest.Test(t, func(t *testing.T) {
				v2, v3 := new(fake), &fake{ready: test.ready}
				began := time.Now()
				s := &Auto{v2: v2, v3: v3, chosen: v3, version: func(ctx context.Context, member string) (string, error) {
					return test.members[member[0]-'0'](ctx, began)
				}, hasRegistry: func(context.Context, string) (bool, error) { return false, nil }}
				for i := range test.members {
					s.members = append(s.members, string(rune('0'+i)))
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- s.Run(ctx, nil) }()
				time.Sleep(time.Minute)
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				for what, f := range map[string]struct {
					*fake
					want time.Duration
				}{"3": {v3, test.three}, "2": {v2, test.two}} {
					switch {
					case f.want == never && f.runs > 0, f.want != never && f.runs != 1:
						t.Errorf("the source of etcd %s has run %d times", what, f.runs)
					case f.want != never && (f.began.Sub(began) < f.want || f.began.Sub(began) > f.want+2*askInterval):
						t.Errorf("the source of etcd %s began after %v; want %v", what, f.began.Sub(began), f.want)
					}
				}
				if chosen := s.now(); (chosen == config.Source(v2)) != (test.two != never) {
					t.Errorf("chosen is %v", chosen)
				}
			})
			if guessed := strings.Contains(log(), "no member of "); guessed != (test.three == versionTimeout) {
				t.Errorf("the log says %v that no member has answered:\n%s", guessed, log())
			}
			if says := strings.Contains(log(), "following etcd 2: "); says != (test.two != never) {
				t.Errorf("the log says %v that etcd 2 is followed:\n%s", says, log())
			}
		})
	}
}

// An etcd 3 whose v3 store is empty is asked once for its v2 store. One line says which flag reads what is there, and nothing waits for it.
func TestARegistryThatOnlyTheV2StoreHasIsReported(t *testing.T) {
	const slow = time.Second
	for _, test := range []struct {
		name    string
		has     config.Status // what the v3 source has read
		ready   time.Duration // when
		version time.Duration // when the member says that it is an etcd 3
		found   bool          // there is something in the v2 store
		err     error
		asked   int
		warns   bool
	}{
		{"only the v2 store has records", config.Status{}, 0, 0, true, nil, 1, true},
		{"the first v3 list takes long", config.Status{}, slow, 0, true, nil, 1, true},
		{"the version takes long", config.Status{}, 0, slow, true, nil, 1, true},
		{"both are empty", config.Status{}, 0, 0, false, nil, 1, false},
		{"the v2 store cannot be read", config.Status{}, 0, 0, false, errors.New("gone"), 1, false},
		{"the v2 store says nothing", config.Status{}, 0, 0, false, context.DeadlineExceeded, 1, false},
		{"the v3 store has services", config.Status{Services: 1}, 0, 0, true, nil, 0, false},
		{"the v3 store has endpoints", config.Status{Endpoints: 1}, 0, 0, true, nil, 0, false},
		{"the v3 store has a record that cannot be used", config.Status{Rejected: 1}, 0, 0, true, nil, 0, false},
		{"the v3 store is never read", config.Status{}, time.Hour, 0, true, nil, 0, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			log := recordstest.LogSince(t)
			synctest.Test(t, func(t *testing.T) {
				v2, v3 := new(fake), &fake{has: test.has, ready: true, from: time.Now().Add(test.ready)}
				asked := 0
				s := &Auto{members: []string{"http://a:1"}, v2: v2, v3: v3, chosen: v3}
				s.version = func(ctx context.Context, _ string) (string, error) {
					select {
					case <-time.After(test.version):
						return "3.4.23", nil
					case <-ctx.Done():
						return "", ctx.Err()
					}
				}
				s.hasRegistry = func(ctx context.Context, member string) (bool, error) {
					if asked++; member != "http://a:1" {
						t.Errorf("%s is asked", member)
					}
					if errors.Is(test.err, context.DeadlineExceeded) {
						<-ctx.Done()
					}
					return test.found, test.err
				}
				ctx, stop := context.WithCancel(t.Context())
				done := make(chan error)
				began := time.Now()
				go func() { done <- s.Run(ctx, nil) }()
				time.Sleep(time.Minute)
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
				if asked != test.asked {
					t.Errorf("the v2 store was asked for %d times, want %d", asked, test.asked)
				}
				if waited := v3.began.Sub(began); v2.runs > 0 || v3.runs != 1 || waited > versionTimeout {
					t.Errorf("the source of etcd 3 began %d times, first after %v; that of etcd 2 %d times", v3.runs, waited, v2.runs)
				}
			})
			const want = "etcd at http://a:1 has no records in its v3 store, but has /registry/services/ in its v2 store: use -etcd_version=2, "
			if got := strings.Count(log(), want); got != map[bool]int{true: 1}[test.warns] {
				t.Errorf("the log has the line %d times:\n%s", got, log())
			}
		})
	}
}
