package metrics

import (
	"bytes"
	"strconv"
	"strings"
	"sync"
	"testing"

	"kubeproxy/config"
	"kubeproxy/proxy/traffic"
	"kubeproxy/registry"
)

// samples gives the values of our counters and histograms on a page, by series.
func samples(t *testing.T, page string) map[string]float64 {
	t.Helper()
	all, grows := make(map[string]float64), false
	for line := range strings.Lines(page) {
		if words := strings.Fields(line); strings.HasPrefix(line, "# TYPE") {
			grows = strings.HasPrefix(words[2], prefix) && (words[3] == "counter" || words[3] == "histogram")
			continue
		}
		if strings.HasPrefix(line, "#") || !grows {
			continue
		}
		cut := strings.LastIndexByte(strings.TrimSpace(line), ' ')
		value, err := strconv.ParseFloat(strings.TrimSpace(line[cut:]), 64)
		if err != nil {
			t.Fatal(err)
		}
		all[line[:cut]] = value
	}
	return all
}

// succeed makes metrics of a successor of before.
func (s *site) succeed(t *testing.T, before *Metrics) *Metrics {
	t.Helper()
	var text bytes.Buffer
	if err := before.WriteCounters(&text); err != nil {
		t.Fatal(err)
	}
	m := s.watch()
	if err := m.ReadCounters(&text); err != nil {
		t.Fatal(err)
	}
	return m
}

// TestCountersGoOnAfterATakeOver, through as many as there are: each is the sum of what every process has counted.
func TestCountersGoOnAfterATakeOver(t *testing.T) {
	s := busySite()
	old := s.watch()
	happen(old)
	first := samples(t, scrape(t, old))
	for n := 2; n <= 4; n++ {
		old = s.succeed(t, old)
		happen(old)
		now := samples(t, scrape(t, old))
		for series, value := range first {
			if want := float64(n) * value; now[series] != want && !strings.Contains(series, "_seconds_sum") && !strings.HasPrefix(series, "kubeproxy_log_") &&
				!strings.HasPrefix(series, "kubeproxy_network_programming") && !strings.HasPrefix(series, "kubeproxy_sync_proxy_rules_duration") {
				t.Errorf("process %d: %s is %v; want %v", n, series, now[series], want)
			}
			if now[series] < value {
				t.Errorf("process %d: %s is %v, and was %v", n, series, now[series], value)
			}
		}
		if len(now) != len(first) {
			t.Errorf("process %d has %d series; the first had %d", n, len(now), len(first))
		}
	}
}

// TestTheChangesOfAKeyGoOnAfterATakeOverAndEndWithTheKey: the successor reads the key anew, which is no change.
func TestTheChangesOfAKeyGoOnAfterATakeOverAndEndWithTheKey(t *testing.T) {
	const pg, lock = `kubeproxy_election_changes_total{key="/service/pg/leader"}`, `kubeproxy_election_changes_total{key="/lock"}`
	next := &site{status: config.Status{Elections: []config.Election{{Key: "/service/pg/leader", Holder: "m1"}}}}
	m := next.succeed(t, busySite().watch())
	page := samples(t, scrape(t, m))
	if _, ok := page[lock]; page[pg] != 14 || ok {
		t.Errorf("the key that is followed has had %v changes, and the other one is told of: %v; want 14, false", page[pg], ok)
	}
}

// TestASeriesThatHasNotBegunAnewIsToldAsItWas, and those of a service that is gone are forgotten.
func TestASeriesThatHasNotBegunAnewIsToldAsItWas(t *testing.T) {
	old := busySite()
	next := &site{totals: []traffic.Totals{{Service: key("web", "p"), Protocol: registry.TCP}}}
	m := next.succeed(t, old.watch())
	page := samples(t, scrape(t, m))
	for series, want := range map[string]float64{
		`kubeproxy_connections_ended_total{port_name="p",reason="client_finished",service="default/web"}`: 1,
		`kubeproxy_sent_bytes_total{port_name="p",protocol="tcp",service="default/web"}`:                  2,
		`kubeproxy_etcd_session_ends_total{reason="broken"}`:                                              2,
	} {
		if got, ok := page[series]; !ok || got != want {
			t.Errorf("%s is %v (%v); want %v", series, got, ok, want)
		}
	}
	next.totals = []traffic.Totals{{Service: key("dns", "p"), Protocol: registry.UDP}} // and web has gone
	m.Gather()
	next.totals = append(next.totals, traffic.Totals{Service: key("web", "p"), Protocol: registry.TCP}) // and has come back
	for series := range samples(t, scrape(t, m)) {
		if strings.Contains(series, "reason=") && strings.Contains(series, "default/") {
			t.Errorf("%s is told again", series)
		}
	}
}

// TestACounterGoesWithTheProtocolOfItsPort, though the service has a port of the other protocol under the same name.
func TestACounterGoesWithTheProtocolOfItsPort(t *testing.T) {
	tcp := traffic.Totals{Service: key("dns", "p"), Protocol: registry.TCP, Begun: 9, Sent: 2}
	udp := traffic.Totals{Service: key("dns", "p"), Protocol: registry.UDP, Begun: 5}
	tcp.Ended[traffic.NoEndpoints], udp.Dropped[traffic.DropNoEndpoints] = 4, 6
	old := &site{totals: []traffic.Totals{tcp, udp}}
	next := &site{totals: []traffic.Totals{{Service: key("dns", "p"), Protocol: registry.TCP, Begun: 1}, udp}}
	m := next.succeed(t, old.watch())
	const begun = `kubeproxy_connections_total{port_name="p",service="default/dns"}`
	const sessions = `kubeproxy_udp_sessions_total{port_name="p",service="default/dns"}`
	if page := samples(t, scrape(t, m)); page[begun] != 10 || page[sessions] != 10 {
		t.Fatalf("%v connections and %v sessions have begun; want 10 of each", page[begun], page[sessions])
	}
	next.totals = next.totals[1:] // the last connection of the TCP port, which the record does not have any more, ends
	page := samples(t, scrape(t, m))
	for series := range page {
		if strings.Contains(series, "kubeproxy_connections_") || strings.Contains(series, `protocol="tcp"`) {
			t.Errorf("%s is told, and the port has gone", series)
		}
	}
	if page[sessions] != 10 || page[`kubeproxy_udp_dropped_datagrams_total{port_name="p",reason="no_endpoints",service="default/dns"}`] != 12 {
		t.Errorf("what UDP has counted is %v", page)
	}
}

// TestACounterThatBeginsAnewForgetsWhatWasBefore: a service that went and came back between two looks is another one. A reader takes a counter that
// falls for one that began at zero, so it must not keep what was before.
func TestACounterThatBeginsAnewForgetsWhatWasBefore(t *testing.T) {
	count := func(begun, refused uint64) []traffic.Totals {
		now := traffic.Totals{Service: key("web", "p"), Protocol: registry.TCP, Begun: begun}
		now.Ended[traffic.NoEndpoints] = refused
		return []traffic.Totals{now}
	}
	const begun = `kubeproxy_connections_total{port_name="p",service="default/web"}`
	const refused = `kubeproxy_connections_ended_total{port_name="p",reason="no_endpoints",service="default/web"}`
	next := &site{totals: count(5, 3)}
	m := next.succeed(t, (&site{totals: count(100, 50)}).watch())
	for _, step := range []struct{ begun, refused, wantBegun, wantRefused uint64 }{
		{5, 3, 105, 53},
		{6, 3, 106, 53},
		{2, 0, 2, 0}, // anew, and nobody has been refused yet
		{7, 1, 7, 1},
	} {
		next.totals = count(step.begun, step.refused)
		page := samples(t, scrape(t, m))
		if page[begun] != float64(step.wantBegun) || page[refused] != float64(step.wantRefused) {
			t.Errorf("with %d clients, of whom %d were refused, %v and %v are told; want %d and %d",
				step.begun, step.refused, page[begun], page[refused], step.wantBegun, step.wantRefused)
		}
	}
}

// TestReadersAtOnceFindNoCounterThatBeginsAnew: what one has gathered before another is not looked at after it.
func TestReadersAtOnceFindNoCounterThatBeginsAnew(t *testing.T) {
	const readers, looks = 8, 50
	old := busySite()
	before := old.watch()
	happen(before)
	m := old.succeed(t, before)
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			for range looks {
				m.Probed("healthz", "200")
				if _, err := m.Gather(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if got := samples(t, scrape(t, m))[`kubeproxy_proxy_healthz_total{code="200"}`]; got != readers*looks+1 {
		t.Errorf("%v answers are told; want those of this process, %d, and 1 of before", got, readers*looks)
	}
}

func TestCountersThatCannotBeReadChangeNothing(t *testing.T) {
	m := busySite().watch()
	before := samples(t, scrape(t, m))
	if err := m.ReadCounters(strings.NewReader("kubeproxy_sent_bytes_total{ 7\n")); err == nil {
		t.Error("no error")
	}
	if now := samples(t, scrape(t, m)); len(now) != len(before) {
		t.Errorf("%d series; there were %d", len(now), len(before))
	}
}
