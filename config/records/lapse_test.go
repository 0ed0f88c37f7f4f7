package records

import (
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry/decode"
)

// leased is a version of a slice that belongs to a lease.
func leased(key string, revision int64, value string) Version {
	return Version{Key: []byte(sliceKey(key)), Value: []byte(value), Created: revision, Revision: revision, Leased: true}
}

// notReady is a slice of service a whose instance says that it is not to be used.
const notReady = `{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"a"}},
	"addressType":"IPv4","ports":[{"name":"","port":1}],"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":false,"serving":false}}]}`

func wantEndpoints(t *testing.T, s *State, want string, kept int) {
	t.Helper()
	if got := s.endpointsText(); got != want {
		t.Errorf("in force: %q; want %q", got, want)
	}
	var st config.Status
	if s.Describe(&st, time.Now()); st.Kept != kept {
		t.Errorf("%d services with endpoints whose leases have ended; want %d", st.Kept, kept)
	}
}

func TestAServiceWhoseLeasesHaveAllEndedKeepsItsEndpointsForFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(decode.Decoder{})
		s.Put(leased("1", 2, slice("a", "10.0.0.1:1")))
		s.Put(leased("2", 3, slice("a", "10.0.0.2:1")))
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.2:1]", 0)
		s.Remove([]byte(sliceKey("1")))
		wantEndpoints(t, s, "a:[10.0.0.2:1]", 0) // as long as there are others
		time.Sleep(time.Minute)
		s.Remove([]byte(sliceKey("2")))
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.2:1]", 1)
		time.Sleep(keepFor - time.Minute)
		wantEndpoints(t, s, "a:[10.0.0.2:1]", 1)
		time.Sleep(time.Minute - time.Nanosecond)
		wantEndpoints(t, s, "a:[10.0.0.2:1]", 1)
		time.Sleep(time.Nanosecond)
		wantEndpoints(t, s, "", 0)
		if len(s.joins) != 0 {
			t.Errorf("%d services are remembered", len(s.joins))
		}
	})
}

func TestAnInstanceThatIsRegisteredAgainIsUsedAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(decode.Decoder{})
		s.Put(leased("1", 2, slice("a", "10.0.0.1:1")))
		s.Put(leased("2", 3, slice("a", "10.0.0.2:1")))
		s.Merge(List{}, 10, nil, 3) // a list after an outage: no event has said that they are gone
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.2:1]", 1)
		s.Put(leased("2", 11, slice("a", "10.0.0.2:1")))
		wantEndpoints(t, s, "a:[10.0.0.2:1]", 0)
		time.Sleep(keepFor + time.Second)
		wantEndpoints(t, s, "a:[10.0.0.2:1]", 0)
	})
}

func TestSlicesThatTheRegistryHasLostStayInForceBesideOthersForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(decode.Decoder{})
		s.Put(leased("1", 12, slice("a", "10.0.0.1:1")))
		s.Put(leased("2", 13, slice("a", "10.0.0.2:1")))
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.2:1]", 0)
		backup := func() (l List) {
			l.Add([]Version{leased("3", 5, slice("a", "10.0.0.3:1"))})
			return l
		}
		s.Merge(backup(), 10, nil, 13)
		s.WentBack()
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.2:1 10.0.0.3:1]", 0)
		s.Put(leased("2", 11, slice("a", "10.0.0.2:1"))) // it is back, and stops
		s.Put(Version{Key: []byte(sliceKey("2")), Value: []byte(notReady), Created: 11, Revision: 12, Leased: true})
		s.Remove([]byte(sliceKey("2")))
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.3:1]", 0)
		time.Sleep(returnFor - time.Nanosecond)
		s.Merge(backup(), 14, nil, 14) // the list of a resync: nothing was lost this time
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.3:1]", 0)
		time.Sleep(time.Nanosecond)
		wantEndpoints(t, s, "a:[10.0.0.3:1]", 0)
		s.Remove([]byte(sliceKey("3")))
		wantEndpoints(t, s, "a:[10.0.0.1:1 10.0.0.3:1]", 1)
		time.Sleep(keepFor)
		wantEndpoints(t, s, "", 0)
	})
}

func TestASliceThatAListLacksIsGoneIfTheRegistryHasLostNothing(t *testing.T) {
	s := New(decode.Decoder{})
	s.Put(leased("1", 12, slice("a", "10.0.0.1:1")))
	s.Put(leased("2", 13, slice("a", "10.0.0.2:1")))
	var l List
	l.Add([]Version{leased("2", 13, slice("a", "10.0.0.2:1"))})
	s.Merge(l, 20, nil, 13)
	wantEndpoints(t, s, "a:[10.0.0.2:1]", 0)
}

func TestOnlyReadyEndpointsOfLeasesAreKept(t *testing.T) {
	withoutLease := leased("1", 2, slice("a", "10.0.0.1:1"))
	withoutLease.Leased = false
	for name, versions := range map[string][]Version{
		"without a lease":             {withoutLease},
		"said not to be ready before": {leased("1", 2, slice("a", "10.0.0.1:1")), {Key: []byte(sliceKey("1")), Value: []byte(notReady), Created: 2, Revision: 3, Leased: true}},
		"taken from its lease before": {leased("1", 2, slice("a", "10.0.0.1:1")), {Key: []byte(sliceKey("1")), Value: []byte(slice("a", "10.0.0.1:1")), Created: 2, Revision: 3}},
	} {
		t.Run(name, func(t *testing.T) {
			s := New(decode.Decoder{})
			for _, v := range versions {
				s.Put(v)
			}
			s.changes()
			s.Remove([]byte(sliceKey("1")))
			wantEndpoints(t, s, "", 0)
		})
	}
}

func TestARecordOfEndpointsComesBeforeWhatHasLapsed(t *testing.T) {
	s := New(decode.Decoder{})
	s.Put(Version{Key: []byte(ends("a")), Value: []byte(addrs("10.0.0.9:1")), Created: 1, Revision: 1})
	s.Put(leased("1", 2, slice("a", "10.0.0.1:1")))
	wantEndpoints(t, s, "a:[10.0.0.1:1]", 0)
	s.Remove([]byte(sliceKey("1")))
	wantEndpoints(t, s, "a:[10.0.0.9:1]", 0)
	s.Remove([]byte(ends("a")))
	wantEndpoints(t, s, "a:[10.0.0.1:1]", 1)
}

func TestTheLapsesOfAServiceAreBounded(t *testing.T) {
	s := New(decode.Decoder{})
	const all = 10 * maxLapses
	for i := range int64(all) {
		s.Put(leased(instance(i), i+2, slice("a", "10.0.0.1:1")))
		s.Remove([]byte(sliceKey(instance(i))))
	}
	for _, j := range s.joins {
		if len(j.lapses) != maxLapses {
			t.Errorf("%d lapses are remembered; want %d", len(j.lapses), maxLapses)
		}
		for i, l := range j.lapses {
			if want := sliceKey(instance(int64(all - maxLapses + i))); l.key != want {
				t.Errorf("lapse %d is of %q; want the last ones, and so %q", i, l.key, want)
			}
		}
	}
}

func instance(i int64) string { return string(rune('a' + i)) }

func TestTheLapsesOfEachServiceEndAfterTheirOwnFiveMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(decode.Decoder{})
		for i, name := range []string{"a", "b", "c"} {
			s.Put(leased(name, int64(i+2), slice(name, "10.0.0.1:1")))
		}
		for _, name := range []string{"a", "b", "c"} { // a minute apart
			s.Remove([]byte(sliceKey(name)))
			time.Sleep(time.Minute)
		}
		wantEndpoints(t, s, "a:[10.0.0.1:1] b:[10.0.0.1:1] c:[10.0.0.1:1]", 3)
		time.Sleep(keepFor - 3*time.Minute)
		wantEndpoints(t, s, "b:[10.0.0.1:1] c:[10.0.0.1:1]", 2)
		time.Sleep(time.Minute)
		wantEndpoints(t, s, "c:[10.0.0.1:1]", 1)
		time.Sleep(time.Minute)
		wantEndpoints(t, s, "", 0)
	})
}

func TestAnInstanceThatLapsesAgainIsRememberedAsItWasLast(t *testing.T) {
	s := New(decode.Decoder{})
	for i, addr := range []string{"10.0.0.1:1", "10.0.0.2:1"} { // in one step
		s.Put(leased("1", int64(i+2), slice("a", addr)))
		s.Remove([]byte(sliceKey("1")))
	}
	wantEndpoints(t, s, "a:[10.0.0.2:1]", 1)
}

func TestAnInstanceThatComesBackWithoutALeaseIsNotRememberedWithIt(t *testing.T) {
	s := New(decode.Decoder{})
	s.Put(leased("1", 2, slice("a", "10.0.0.1:1")))
	s.Remove([]byte(sliceKey("1")))
	wantEndpoints(t, s, "a:[10.0.0.1:1]", 1)
	back := leased("1", 3, slice("a", "10.0.0.2:1"))
	back.Leased = false
	s.Put(back)
	wantEndpoints(t, s, "a:[10.0.0.2:1]", 0)
	s.Remove([]byte(sliceKey("1")))
	wantEndpoints(t, s, "", 0)
}

// Who deletes a slice on purpose takes it off its lease first: that is no end of a lease.
func TestASliceThatWasTakenOffItsLeaseIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(decode.Decoder{})
		s.Put(leased("1", 2, slice("a", "10.0.0.1:1")))
		free := leased("1", 2, slice("a", "10.0.0.1:1"))
		free.Revision, free.Leased = 3, false
		s.Put(free)
		s.Remove([]byte(sliceKey("1")))
		wantEndpoints(t, s, "", 0)
	})
}

func TestAServiceThatLetsItsEndpointsLapseHasNoneOnceTheirLeasesHaveEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		service := func(s *State, revision int64, annotations string) {
			s.Put(Version{Key: []byte(recordstest.Spec("a")), Value: []byte(`{"port":80,"annotations":{` + annotations + `}}`), Created: 1, Revision: revision})
		}
		s := New(decode.Decoder{})
		service(s, 1, `"kube-proxy/keep-lapsed":"false"`)
		s.Put(leased("1", 2, slice("a", "10.0.0.1:1")))
		wantEndpoints(t, s, "a:[10.0.0.1:1]", 0)
		s.Remove([]byte(sliceKey("1")))
		wantEndpoints(t, s, "", 0)
		if len(s.joins) != 0 {
			t.Errorf("%d services are remembered", len(s.joins))
		}

		service(s, 3, "") // its endpoints stay, until it says otherwise
		s.Put(leased("1", 4, slice("a", "10.0.0.1:1")))
		s.Remove([]byte(sliceKey("1")))
		wantEndpoints(t, s, "a:[10.0.0.1:1]", 1)
		service(s, 5, `"kube-proxy/keep-lapsed":"false"`)
		wantEndpoints(t, s, "", 0)

		s.Put(leased("1", 6, slice("a", "10.0.0.1:1")))
		s.Put(leased("2", 7, slice("a", "10.0.0.2:1")))
		s.Remove([]byte(sliceKey("1"))) // also beside others
		s.WentBack()
		wantEndpoints(t, s, "a:[10.0.0.2:1]", 0)
	})
}
