package config

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fixed is a source that is asked for its status and nothing else.
type fixed struct {
	Source
	status Status
}

func (f fixed) Status() Status { return f.status }

func TestTheTotalOfOneSourceIsItsStatus(t *testing.T) {
	st := Status{Ready: true, Revision: 3, Cluster: "7", Reason: "gone", Current: time.Unix(1, 0), Rejections: []Rejection{{Key: "a"}}}
	if diff := cmp.Diff(st, Total(fixed{status: st})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(Status{}, Total()); diff != "" {
		t.Errorf("of none: -want +got:\n%s", diff)
	}
}

func TestTheTotalOfSeveralSourcesIsTheWorstAndTheSum(t *testing.T) {
	at := func(s int64) time.Time { return time.Unix(s, 0) }
	first := Status{Ready: true, Connected: true, Revision: 3, Cluster: "7", Heard: at(9), Current: at(5), Listed: at(4),
		Services: 1, Endpoints: 2, Rejected: 1, Rejections: []Rejection{{Key: "a"}}, Sessions: 3, Resyncs: 4, Divergences: 5, Setbacks: 6,
		Ends: []End{{"broken", 1}, {"silent", 2}}}
	second := Status{Ready: true, Revision: 8, Since: at(1), Cause: "auth", Reason: "refused", Attempts: 2, Heard: at(8), Current: at(6), Listed: at(3),
		Services: 10, Endpoints: 20, Rejected: 1, Rejections: []Rejection{{Key: "b"}}, Sessions: 30, Resyncs: 40, Divergences: 50, Setbacks: 60,
		Ends: []End{{"silent", 10}, {"gone", 20}}}
	want := Status{Ready: true, Revision: 8, Since: at(1), Cause: "auth", Reason: "refused", Attempts: 2, Heard: at(8), Current: at(5), Listed: at(3),
		Services: 11, Endpoints: 22, Rejected: 2, Rejections: []Rejection{{Key: "a"}, {Key: "b"}}, Sessions: 33, Resyncs: 44, Divergences: 55, Setbacks: 66,
		Ends: []End{{"broken", 1}, {"silent", 12}, {"gone", 20}}}
	if diff := cmp.Diff(want, Total(fixed{status: first}, fixed{status: second})); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	second.Connected, second.Ready = true, false
	if got := Total(fixed{status: first}, fixed{status: second}); got.Ready || !got.Connected || got.Revision != 3 || got.Cluster != "7" {
		t.Errorf("%+v; want connected, not ready, and the first one's revision", got)
	}
}
