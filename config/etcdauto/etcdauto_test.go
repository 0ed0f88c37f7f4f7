package etcdauto

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/registry"
)

// A fake is a source that only runs.
type fake struct {
	config.Source
	runs  int
	began time.Time
	ready bool
}

func (f *fake) Run(ctx context.Context, _ chan<- registry.Update) error {
	f.runs++
	f.began = time.Now()
	<-ctx.Done()
	return nil
}

func (f *fake) Status() config.Status { return config.Status{Ready: f.ready} }

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
		{"nothing", []func(context.Context, time.Time) (string, error){gone, gone}, false, patience, never},
		{"one old machine among silent ones", []func(context.Context, time.Time) (string, error){at("2.3.8"), gone, gone}, false, patience, lenient + between},
		{"an old machine beside a new one", []func(context.Context, time.Time) (string, error){at("2.3.8"), at("3.6.1"), at("2.3.8")}, false, 0, never},
		{"a majority of old ones", []func(context.Context, time.Time) (string, error){at("2.3.8"), gone, at("2.3.7")}, false, never, 0},
		{"an etcd 2 that comes later", []func(context.Context, time.Time) (string, error){after(5*time.Second, "2.3.8")}, false, patience, 5 * time.Second},
		{"an etcd 3 that is slow", []func(context.Context, time.Time) (string, error){after(time.Second, "3.6.1")}, false, patience, never},
		{"one that says 2 and serves 3", []func(context.Context, time.Time) (string, error){after(time.Second, "2.3.8")}, true, patience, never},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v2, v3 := new(fake), &fake{ready: test.ready}
				began := time.Now()
				s := &Source{v2: v2, v3: v3, chosen: v3, version: func(ctx context.Context, member string) (string, error) {
					return test.members[member[0]-'0'](ctx, began)
				}}
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
					case f.want != never && (f.began.Sub(began) < f.want || f.began.Sub(began) > f.want+2*between):
						t.Errorf("the source of etcd %s began after %v; want %v", what, f.began.Sub(began), f.want)
					}
				}
				if chosen := s.now(); (chosen == config.Source(v2)) != (test.two != never) {
					t.Errorf("chosen is %v", chosen)
				}
			})
		})
	}
}
