package statuspage

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"kubeproxy/cmd/internal/statuspage/recent"
	"kubeproxy/proxy"
	"kubeproxy/proxy/balance/rotation"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
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
			time.Sleep(recent.ShownFor / 2)
			get(t, p, target)
		}
		if s.listed > 6 {
			t.Errorf("within %v the clients were listed %d times", 5*recent.ShownFor, s.listed)
		}
	})
}

// TestAListOfClientsThatHasNoTimeYetSaysSo: it does not say that there are no clients.
func TestAListOfClientsThatHasNoTimeYetSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(2)
		s.listing = time.Second
		p := s.page(t)
		for i, want := range []string{"The service has no client now.", "No client is listed. The clients are not listed yet"} {
			if got := elementText(t, get(t, p, serviceHref(numbered(i))).Body.String(), "clients"); !strings.Contains(got, want) {
				t.Errorf("service %d: %q; want it to say %q", i, got, want)
			}
		}
		time.Sleep(time.Minute)
		if got := elementText(t, get(t, p, serviceHref(numbered(1))).Body.String(), "clients"); !strings.Contains(got, "The service has no client now.") {
			t.Errorf("a minute later: %q", got)
		}
		time.Sleep(time.Minute)
		get(t, p, "/status/service?name=")
		if s.listed != 2 {
			t.Errorf("clients were listed %d times, those of no service among them", s.listed)
		}
	})
}

// TestTheClientsOfAServiceThatIsNotThereAreNotListed: requests for unknown names take no time from the lists of real services.
func TestTheClientsOfAServiceThatIsNotThereAreNotListed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(1)
		p := s.page(t)
		for i := range 100 {
			get(t, p, serviceHref(numbered(i+1)))
		}
		if s.listed != 0 {
			t.Errorf("clients of services that are not there were listed %d times", s.listed)
		}
		v := p.service(httptest.NewRequest("GET", serviceHref(numbered(1)), nil))
		if missing := v.data.(serviceData).Clients.Missing; !strings.Contains(missing, "some may go on") {
			t.Errorf("a page that was open before says %q", missing)
		}
	})
}

// TestAListOfClientsSaysAsOfWhenItIs, if that is not about now.
func TestAListOfClientsSaysAsOfWhenItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(1)
		s.listing = 100 * time.Millisecond
		p := s.page(t)
		as := "As of " + time.Now().Format(time.TimeOnly) + ": "
		for _, old := range []bool{false, false, false, true, true} {
			if got := elementText(t, get(t, p, serviceHref(numbered(0))).Body.String(), "clients"); strings.Contains(got, as) != old {
				t.Errorf("%s the list says %q; want it to say %q: %v", time.Now().Format(time.TimeOnly), got, as, old)
			}
			time.Sleep(800 * time.Millisecond)
		}
		if s.listed != 1 {
			t.Errorf("clients were listed %d times", s.listed)
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

// TestAnOpenPageSaysThatItsServiceHasGone, with the title of the window, and shows nothing of it any more until it comes back.
func TestAnOpenPageSaysThatItsServiceHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const goes, comes = 10*time.Second + period/3, 20*time.Second + period/3
		s := newSite(10)
		name, services, ports := numbered(9), s.services, s.ports
		edit := func(services map[registry.Name]*registry.Service, ports []proxy.PortStatus) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.services, s.ports = services, ports
		}
		events := streamed(t, s.page(t), strings.Replace(serviceHref(name), "?", "&", 1), func() {
			time.Sleep(goes)
			without := maps.Clone(services)
			delete(without, name)
			edit(without, ports[:9])
			time.Sleep(comes - goes)
			edit(services, ports)
			time.Sleep(3 * period)
			synctest.Wait()
		})
		for _, c := range []struct {
			after time.Duration
			want  map[string]string // in parts
		}{
			{goes, map[string]string{"verdict": "default/service-00009 is well.", "ports-body": "1009/tcp", "rotations": "10.1.0.0:80",
				"record": "the record in force"}},
			{goes + 2*period, map[string]string{"verdict": "There is no service default/service-00009.", "ports-body": "asks for no port",
				"rotations": `<div id="rotations"></div>`, "record": "No record of this service is in force."}},
			{comes + 2*period, map[string]string{"verdict": "default/service-00009 is well.", "ports-body": "1009/tcp", "rotations": "10.1.0.0:80"}},
		} {
			shown := make(map[string]string)
			for _, event := range events[:1+c.after/period] { // one event each period, the first at once
				maps.Copy(shown, event)
			}
			for id, want := range c.want {
				if !strings.Contains(strings.ToLower(shown[id]), strings.ToLower(want)) {
					t.Errorf("after %v, %s is %q; want %q in it", c.after, id, shown[id], want)
				}
			}
			if gone := strings.Contains(shown["verdict"], `data-title="No such service – node-1"`); gone != (c.after == goes+2*period) {
				t.Errorf("after %v, the title of the window says that the service has gone: %t", c.after, gone)
			}
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
