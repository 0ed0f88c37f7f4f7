package statuspage

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

func TestTheNewestEndingsAreKeptAndRecordingNeverWaits(t *testing.T) {
	var endings Endings
	for i := range 3 * keptEndings {
		endings.Record(traffic.Ending{Listener: registry.ListenerID{Number: uint16(i)}})
	}
	all := endings.last(func(*traffic.Ending) bool { return true })
	if len(all) != keptEndings {
		t.Fatalf("%d endings are kept; want %d", len(all), keptEndings)
	}
	for i, e := range all {
		if want := uint16(3*keptEndings - 1 - i); e.Listener.Number != want {
			t.Fatalf("ending %d is that of port %d; want %d", i, e.Listener.Number, want)
		}
	}
	for i := range endings.slots {
		endings.slots[i].mu.Lock() // as a viewer does, who never lets go
	}
	endings.Record(traffic.Ending{})
	if n := testing.AllocsPerRun(100, func() { endings.Record(traffic.Ending{}) }); n > 0 {
		t.Errorf("to record an ending allocates %v times; want 0", n)
	}
}

func TestRatesAreOfTheLastSecondsOnly(t *testing.T) {
	var m meter[int]
	now := time.Now()
	read := func(after time.Duration, begun uint64) rates {
		now = now.Add(after)
		m.read(now, map[int]counts{1: {begun: begun}})
		return m.rate(now, 1, counts{begun: begun})
	}
	if got := read(0, 1000); got.Known {
		t.Errorf("at the first look a rate is known: %v", got)
	}
	if got := read(2*time.Second, 1020); got.New != 10 {
		t.Errorf("20 within 2 s make %v per second; want 10", got.New)
	}
	read(4*time.Second, 1060)
	if got := read(5*time.Second, 1060); got.New != 0 {
		t.Errorf("after a quiet step the rate is %v; want 0", got.New)
	}
	if got := read(time.Second, 7); got.Known {
		t.Errorf("counters that went back make a rate: %v", got)
	}
	if got := read(time.Hour, 9); got.Known {
		t.Errorf("an hour without a look makes a rate: %v", got)
	}
}

func TestAHistoryHasFiveMinutesAtMost(t *testing.T) {
	var h history
	now := time.Now()
	for i := range 200 {
		now = now.Add(meterStep)
		h.add(now, counts{active: int64(i), begun: uint64(10 * i)})
		h.add(now.Add(time.Second), counts{begun: uint64(10 * i)}) // too soon
	}
	if len(h.points) != keptPoints {
		t.Fatalf("%d points are kept; want %d", len(h.points), keptPoints)
	}
	if last := h.points[keptPoints-1]; last.active != 199 || last.New != 2 {
		t.Errorf("the last point is %+v; want 199 clients, 2 new per second", last)
	}
	h.add(now.Add(time.Hour), counts{})
	if len(h.points) != keptPoints {
		t.Error("an hour without a look makes a point")
	}
}

func TestOnlyServicesThatSomebodyLooksAtHaveAHistory(t *testing.T) {
	hs := make(histories)
	now := time.Now()
	name := func(i int) registry.Name { return registry.Name{Name: fmt.Sprint(i)} }
	for i := range 2 * maxHistories {
		hs.of(name(i), now.Add(time.Duration(i)*time.Second))
	}
	if len(hs) != maxHistories || hs[name(0)] != nil || hs[name(2*maxHistories-1)] == nil {
		t.Errorf("%d histories are kept, of the first: %v; want the newest %d", len(hs), hs[name(0)], maxHistories)
	}
	hs.expire(now.Add(time.Hour))
	if len(hs) != 0 {
		t.Errorf("%d histories outlast their viewers", len(hs))
	}
}

// TestNobodyLooksNothingIsKept: what viewers need goes when they do.
func TestNobodyLooksNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(10).page(t)
		get(t, p, "/status/service?name=default%2Fservice-00001")
		time.Sleep(historyForgets + time.Second)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.latest != nil || p.traffic.next != nil || len(p.histories) > 0 {
			t.Errorf("kept: snapshot %v, counters %v, histories %v", p.latest, p.traffic.next, p.histories)
		}
	})
}

// TestViewersShareASnapshot: a hundred viewers cost the node as much as one.
func TestViewersShareASnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(10).page(t)
		first := p.look()
		for range 100 {
			if p.look() != first {
				t.Fatal("a second look within the same moment reads the node again")
			}
		}
		first.took = 3 * time.Second // as of a node that is busy
		time.Sleep(time.Minute)
		if p.look() != first {
			t.Error("snapshots that take 3 s are taken each minute")
		}
		time.Sleep(2 * time.Minute)
		if p.look() == first {
			t.Error("a look after three minutes shows what was")
		}
	})
}

// streamed runs a stream until ctx ends, and returns its events.
func streamed(t *testing.T, p *Page, of string, meanwhile func()) (events []map[string]string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	answer, done := httptest.NewRecorder(), make(chan struct{})
	go func() {
		defer close(done)
		p.Streams()["/status/events"].ServeHTTP(answer, httptest.NewRequest("GET", "/status/events?of="+of, nil).WithContext(ctx))
	}()
	meanwhile()
	cancel()
	<-done
	if got := answer.Header().Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the stream is %s: %s", got, answer.Body)
	}
	for event := range strings.SplitSeq(answer.Body.String(), "\n\n") {
		if event == "" {
			continue
		}
		var parts map[string]string
		if err := json.Unmarshal([]byte(strings.TrimPrefix(event, "data: ")), &parts); err != nil {
			t.Fatalf("event %q: %v", event, err)
		}
		events = append(events, parts)
	}
	return events
}

// TestALivePageNamesAFaultWithinThreeSeconds, in its first sentence, and no longer once it is mended.
func TestALivePageNamesAFaultWithinThreeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const before, within = 10*time.Second + period/3, 3 * time.Second
		s := newSite(10)
		key := s.ports[3].Owner
		edit := func(endpoints []rotation.EndpointStatus) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.endpoints[key], s.totals[3].Ended[traffic.NoEndpoints] = endpoints, 1
		}
		endpoints := s.endpoints[key]
		events := streamed(t, s.page(t), "/", func() {
			time.Sleep(before)
			edit(nil)
			time.Sleep(within)
			edit(endpoints)
			time.Sleep(within)
			synctest.Wait()
		})
		for after, want := range map[time.Duration]string{
			before:            "All is well.",
			before + within:   "default/service-00003 has no endpoints, and clients of tcp port 1003 were turned away",
			before + 2*within: "All is well.",
		} {
			var shown string
			for _, event := range events[:1+after/period] { // one event each period, the first at once
				shown = cmp.Or(event["verdict"], shown)
			}
			if !strings.Contains(shown, want) {
				t.Errorf("after %v the page says %q; want %q", after, shown, want)
			}
		}
	})
}

// TestAStreamSendsWhatHasChangedAndNothingElse follows the second page of 250 services, of which two change.
func TestAStreamSendsWhatHasChangedAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(250)
		p := s.page(t)
		events := streamed(t, p, "/&page=2", func() {
			time.Sleep(10*period + period/2) // rates are known, and stay 0
			synctest.Wait()
			s.mu.Lock()
			s.totals[7].Active = 17   // on the first page
			s.totals[107].Active = 18 // on this one
			s.mu.Unlock()
			time.Sleep(2 * period)
			synctest.Wait()
		})
		if first := events[0]; strings.Count(first["services"], "<tr id=") != pageRows || !strings.Contains(first["verdict"], "All is well.") {
			t.Errorf("the first event is %v; want all parts", first)
		}
		for _, quiet := range events[8:11] {
			for id := range quiet {
				if id != "at" && id != "sources-body" { // the time, and how long ago the source was confirmed
					t.Errorf("nothing changed, and %s is sent", id)
				}
			}
		}
		changed := make(map[string]string)
		for _, event := range events[11:] {
			for id, text := range event {
				changed[id] = text
			}
		}
		if row := changed["tcp-1107"]; !strings.Contains(row, ">18<") {
			t.Errorf("the row that changed is %q", row)
		}
		if changed["tcp-1007"] != "" || changed["services"] != "" {
			t.Errorf("rows that nobody sees are sent: %v", changed)
		}
		if figures := changed["figures"]; !strings.Contains(figures, "779 clients now") {
			t.Errorf("the figures are %q", figures)
		}
	})
}

func TestAStreamRemembersVisibleRowsOnly(t *testing.T) {
	seen := newSeen()
	for i := range 50 {
		s := newSite(100)
		for j := range s.ports {
			s.ports[j].ID.Number += uint16(100 * i)
		}
		p := s.page(t)
		if _, err := seen.changes(p.overview(httptest.NewRequest("GET", "/", nil)).parts); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(seen.parts); n > pageRows+20 {
		t.Errorf("the stream remembers %d parts", n)
	}
}

func TestAnUnknownPageHasNoStream(t *testing.T) {
	answer := httptest.NewRecorder()
	newSite(1).page(t).Streams()["/status/events"].ServeHTTP(answer, httptest.NewRequest("GET", "/status/events?of=/metrics", nil))
	if answer.Code != 404 {
		t.Errorf("it is answered with %d", answer.Code)
	}
}
