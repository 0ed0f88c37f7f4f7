package statuspage

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
)

// TestNobodyLooksNothingIsKept: what viewers need goes when they do.
func TestNobodyLooksNothingIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSite(10).page(t)
		get(t, p, "/status/service?name=default%2Fservice-00001")
		time.Sleep(recent.Forgets + time.Second)
		synctest.Wait()
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.latest != nil || p.traffic.Len() > 0 || len(p.histories) > 0 {
			t.Errorf("kept: snapshot %v, counters %v, histories %v", p.latest, p.traffic.Len(), p.histories)
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

// TestViewersShareAListOfClients: each list is a turn of the event loops for some of the clients, so viewers do not add to it.
func TestViewersShareAListOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(1)
		p := s.page(t)
		const target = "/status/service?name=default%2Fservice-00000"
		for range 100 {
			get(t, p, target)
		}
		if s.listed != 1 {
			t.Errorf("100 viewers within a moment have the clients listed %d times", s.listed)
		}
		for range 10 {
			time.Sleep(shownFor / 2)
			get(t, p, target)
		}
		if s.listed > 6 {
			t.Errorf("within %v the clients were listed %d times", 5*shownFor, s.listed)
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
