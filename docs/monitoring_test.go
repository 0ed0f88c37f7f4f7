package docs

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"kubeproxy/proxy/traffic"
)

// A rule is one alert of docs/monitoring/alerts.yml.
type rule struct {
	Alert       string
	Expr        string
	Labels      map[string]string
	Annotations map[string]string
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("monitoring/alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Groups []struct{ Rules []rule } }
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Groups) != 1 || len(file.Groups[0].Rules) < 15 {
		t.Fatalf("alerts.yml: %v, %+v", err, file)
	}
	return file.Groups[0].Rules
}

// anchors are those that GitHub gives the headings of a document.
func anchors(t *testing.T, document string) map[string]bool {
	t.Helper()
	all := make(map[string]bool)
	other := regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
	for _, heading := range found(t, document, `(?m)^#+ (.*)$`) {
		all[strings.ReplaceAll(other.ReplaceAllString(strings.ToLower(heading), ""), " ", "-")] = true
	}
	return all
}

// TestEachAlertHasASeverityASummaryAndARunbook, and each section of the runbook an alert. promtool tests each.
func TestEachAlertHasASeverityASummaryAndARunbook(t *testing.T) {
	known, tested := anchors(t, "troubleshooting.md"), found(t, "monitoring/alerts_test.yml", `(?m)^- name: (\w+)$`)
	var names []string
	for _, r := range rules(t) {
		names = append(names, r.Alert)
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" {
			t.Errorf("%s has the severity %q and the summary %q", r.Alert, r.Labels["severity"], r.Annotations["summary"])
		}
		anchor, ok := strings.CutPrefix(r.Annotations["runbook_url"], "file:///usr/share/doc/kube-proxy-classic/docs/troubleshooting.md#")
		if !ok || anchor != strings.ToLower(r.Alert) || !known[anchor] {
			t.Errorf("%s: its runbook_url is %q; want its section of troubleshooting.md", r.Alert, r.Annotations["runbook_url"])
		}
	}
	if !slices.Equal(tested, names) {
		t.Errorf("alerts_test.yml tests %q; want %q", tested, names)
	}
	if sections := found(t, "troubleshooting.md", `(?m)^### (KubeProxy\w+)$`); !slices.Equal(sections, names) {
		t.Errorf("troubleshooting.md has sections for %q; want %q", sections, names)
	}
}

// A panel is one of a dashboard.
type panel struct {
	ID                       int
	Type, Title, Description string
	Datasource               struct{ UID string }
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct{ Expr, RefID string }
}

// overlaps reports whether two panels have a place in common.
func (p *panel) overlaps(q *panel) bool {
	a, b := p.GridPos, q.GridPos
	return a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H
}

// checkPanels reports what Grafana would not draw as it is meant: it has 24 columns.
func checkPanels(t *testing.T, file string, panels []panel) {
	t.Helper()
	for i := range panels {
		p := &panels[i]
		if p.Title == "" || p.Description == "" || p.Type == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: a panel is not complete: %+v", file, p)
		}
		if g := p.GridPos; g.X < 0 || g.W <= 0 || g.X+g.W > 24 || g.H <= 0 {
			t.Errorf("%s: %s has the place %+v", file, p.Title, g)
		}
		for j := range panels[:i] {
			if q := &panels[j]; p.ID == q.ID || p.overlaps(q) {
				t.Errorf("%s: %s and %s have one place or one id", file, p.Title, q.Title)
			}
		}
		for j, target := range p.Targets {
			for _, other := range p.Targets[:j] {
				if target.RefID == "" || target.RefID == other.RefID {
					t.Errorf("%s: %s has two queries of the name %q", file, p.Title, target.RefID)
				}
			}
		}
	}
}

// TestMonitoringNamesOnlyMetricsThatExist: a dashboard that asks for another one stays empty, and an alert never fires.
func TestMonitoringNamesOnlyMetricsThatExist(t *testing.T) {
	exists := map[string]bool{"up": true, "process_cpu_seconds_total": true, "process_resident_memory_bytes": true}
	for _, name := range found(t, "../cmd/internal/metrics/testdata/metrics.golden", `(?m)^(\w+) `) {
		exists[name] = true
	}
	name := regexp.MustCompile(`\b(?:kubeproxy|process)_\w+|\bup\b`)
	check := func(where, text string) {
		t.Helper()
		names := name.FindAllString(text, -1)
		if len(names) == 0 {
			t.Errorf("%s names no metric: %s", where, text)
		}
		for _, n := range names {
			base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(n, "")
			if !exists[n] && !exists[base] {
				t.Errorf("%s names %s, which does not exist", where, n)
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Alert, r.Expr)
	}
	for _, file := range []string{"monitoring/fleet.json", "monitoring/service.json"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard struct {
			UID, Title string
			Panels     []panel
		}
		if err := json.Unmarshal(text, &dashboard); err != nil || dashboard.UID == "" || dashboard.Title == "" || len(dashboard.Panels) < 10 {
			t.Fatalf("%s: %v, %q with %d panels", file, err, dashboard.Title, len(dashboard.Panels))
		}
		checkPanels(t, file, dashboard.Panels)
		for _, p := range dashboard.Panels {
			for _, target := range p.Targets {
				check(file+": "+p.Title, target.Expr)
			}
		}
	}
}

// TestMonitoringKnowsEachReasonForWhichClientsAreTurnedAway: the panel of the fleet shows each, and alerts fire for each that is a fault.
func TestMonitoringKnowsEachReasonForWhichClientsAreTurnedAway(t *testing.T) {
	var asMeant = []traffic.Reason{traffic.NoLocalEndpoint, traffic.SourceNotAllowed, traffic.Loop} // Loop is of UDP
	var droppedAsMeant = []traffic.DropReason{traffic.DropNoLocalEndpoint, traffic.DropSource, traffic.DropLoop, traffic.DropNotSent, traffic.DropTooLong,
		traffic.DropEnded, traffic.DropClient, traffic.DropShutdown}
	selects := func(text, metric, reason string) bool {
		selector := regexp.MustCompile(metric + `\{[^}]*?reason=~\\?"([^"\\]*)`)
		return slices.ContainsFunc(selector.FindAllStringSubmatch(text, -1), func(m []string) bool {
			return regexp.MustCompile("^(?:" + m[1] + ")$").MatchString(reason)
		})
	}
	const ended, dropped = "kubeproxy_connections_ended_total", "kubeproxy_udp_dropped_datagrams_total"
	panel, alerts := read(t, "monitoring/fleet.json"), read(t, "monitoring/alerts.yml")
	for _, r := range traffic.Reasons() {
		turnedAway := r >= traffic.FirstTurnedAway && r <= traffic.LastTurnedAway
		if got := selects(panel, ended, r.String()); got != turnedAway {
			t.Errorf("fleet.json shows clients that are turned away for %s: %t; want %t", r, got, turnedAway)
		}
		if got, want := selects(alerts, ended, r.String()), turnedAway && !slices.Contains(asMeant, r); got != want {
			t.Errorf("an alert fires for %s: %t; want %t", r, got, want)
		}
	}
	for _, r := range traffic.DropReasons() {
		if got, want := selects(alerts, dropped, r.Code()), !slices.Contains(droppedAsMeant, r); got != want {
			t.Errorf("an alert fires for datagrams that are dropped for %s: %t; want %t", r.Code(), got, want)
		}
	}
	_, section, _ := strings.Cut(read(t, "troubleshooting.md"), "### KubeProxyServiceRefusesClients\n")
	section, _, _ = strings.Cut(section, "\n### ")
	for _, r := range rules(t) {
		if r.Alert != "KubeProxyServiceRefusesClients" {
			continue
		}
		for _, condition := range strings.Split(regexp.MustCompile(`"(.*)"`).FindStringSubmatch(r.Expr)[1], "|") {
			if !strings.Contains(section, "`"+condition+"`") {
				t.Errorf("the section of %s does not name %s", r.Alert, condition)
			}
		}
	}
}
