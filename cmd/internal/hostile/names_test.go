//go:build linux

package hostile

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// logLine is how each line of the log begins.
var logLine = regexp.MustCompile(`^[IWE]\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ \w+\.go:\d+\] `)

// hostileNames would be something else to a terminal, a browser, or a program that reads lines, if they were
// written as they are.
var hostileNames = []string{
	"<script>alert(1)</script>", "<!--", "a&b;", `quote"and\backslash`, "line\nE1121 00:00:00.000000 1 proxier.go:1] forged",
	"carriage\rreturn", "colour\x1b[31m\x1b]0;title\a", "nul\x00byte", "tab\tand\vmore", "delete\x7f", "c1\u0085\u009b31m", "override\u202emoc",
	"separator\u2028\u2029", "invisible\u200b\ufeff", "not utf-8 \xff\xfe", `"} 1` + "\nforged_metric 2\n", "{}", `\u0000`, "%s%n%d", strings.Repeat("long\n", 49), " ", "..",
}

// TestHostileNames are carried into everything that the program says: the log at its most talkative, metrics, configz, the
// connection log, and check. All of it stays what it is, a line for each thing that happened.
func TestHostileNames(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := newSite(t, "-v=4", "-metrics_endpoints")
	var services []string
	for i, name := range hostileNames {
		port := 9000 + i
		s.put(t, registry.EndpointsPrefix+name, record(t, map[string]any{"kind": "Endpoints", "apiVersion": "v1beta1", "id": name, "endpoints": []string{echoes, name + ":1"}}))
		s.put(t, registry.SpecsPrefix+name, record(t, map[string]any{"kind": "Service", "apiVersion": "v1beta1", "id": name, "port": port, "protocol": "TCP"}))
		s.put(t, registry.SpecsPrefix+"bad-"+name, `{"kind":"`+name+`"`)                                                                          // cannot be read
		s.put(t, registry.SpecsPrefix+"worse-"+name, record(t, map[string]any{"kind": name, "apiVersion": name, "protocol": name, "port": name})) // can, and says nonsense
		s.put(t, registry.EndpointsPrefix+"odd-"+name, record(t, map[string]any{"kind": "Endpoints", "apiVersion": "v1beta1", "endpoints": []string{name}}))
		services = append(services, at(strconv.Itoa(port)))
	}
	ports := func() float64 { return s.sum(t, "kubeproxy_listeners") }
	eventually(t, func() bool { return ports() == float64(4+len(services)) }, "%d services are open", len(services))
	eventually(t, func() bool { return s.sum(t, "kubeproxy_rejected_keys") == float64(2*len(hostileNames)) }, "all bad records are rejected")
	for _, addr := range services {
		stand(t, addr).leave(t)
	}
	clients := bystanders * len(services)
	eventually(t, func() bool {
		text, err := os.ReadFile(s.connlog)
		return err == nil && strings.Count(string(text), "\n") >= clients
	}, "%d lines in the connection log", clients)
	s.works(t)

	harmless := func(what, text string) {
		t.Helper()
		if !utf8.ValidString(text) {
			t.Errorf("%s is not UTF-8", what)
		}
		for _, r := range text {
			if r != '\n' && r != '…' && !strconv.IsPrint(r) {
				t.Errorf("%s holds %q as it is", what, r)
			}
		}
	}
	connections, err := os.ReadFile(s.connlog)
	if err != nil {
		t.Fatal(err)
	}
	harmless("the connection log", string(connections))
	told := make(map[string]int)
	for line := range strings.Lines(string(connections)) {
		var fields struct{ Service string }
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			t.Errorf("a line of the connection log: %v: %s", err, line)
		}
		told[fields.Service]++
	}
	if len(told) != len(services) {
		t.Errorf("the connection log tells of %d services; want %d", len(told), len(services))
	}
	said := s.proxy.Stderr.String()
	harmless("the log", said)
	for line := range strings.Lines(said) {
		if !logLine.MatchString(line) || strings.Contains(line, "] forged") && !strings.Contains(line, `\n`) {
			t.Errorf("this is no line of the log: %q", line)
		}
	}
	metrics := s.page(t, metricsURL+"/metrics")
	harmless("/metrics", metrics)
	if _, err := promlint.New(strings.NewReader(metrics)).Lint(); err != nil {
		t.Errorf("/metrics: %v", err)
	}
	if strings.Contains(metrics, "\nforged_metric") {
		t.Error("a name became a metric")
	}
	if got := len(s.metrics(t).SumBy("service", "kubeproxy_connections_active")); got != 3+len(services) {
		t.Errorf("metrics name %d services over TCP; want %d", got, 3+len(services))
	}
	configz := s.page(t, metricsURL+"/configz")
	harmless("/configz", configz)
	check, err := exec.Command(os.Getenv(binaryEnv), "check", "-etcd_servers="+s.etcd.URL(), "-o", "json").Output()
	if exit, failed := err.(*exec.ExitError); !failed || exit.ExitCode() != 1 {
		t.Errorf("check of bad records: %v; want exit status 1", err)
	}
	harmless("check -o json", string(check))
	for what, text := range map[string]string{"/configz": configz, "check -o json": string(check)} {
		if !json.Valid([]byte(text)) {
			t.Errorf("%s is no JSON", what)
		}
		if strings.Contains(text, "<script") {
			t.Errorf("%s has markup in it", what)
		}
	}
	text, err := exec.Command(os.Getenv(binaryEnv), "check", "-etcd_servers="+s.etcd.URL()).Output()
	if _, failed := err.(*exec.ExitError); !failed {
		t.Errorf("check: %v", err)
	}
	harmless("check", string(text))
	r := s.row(t, fmt.Sprintf("%d names with control characters and markup", len(hostileNames)), base)
	r.Refused = fmt.Sprintf("%.0f keys rejected", s.sum(t, "kubeproxy_rejected_keys"))
	r.judge(t)
}

// TestALongNameMakesNoLongLines: a service whose name is 1.4 MB.
func TestALongNameMakesNoLongLines(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const port, line = "7309", 4096
	s := attacked(t)
	name := strings.Repeat("n", largeValue)
	s.endpointsRecord(t, name, record(t, map[string]any{"kind": "Endpoints", "apiVersion": "v1beta1", "endpoints": []string{echoes}}))
	s.spec(t, name, record(t, map[string]any{"kind": "Service", "apiVersion": "v1beta1", "port": whole(t, port)}))
	s.works(t)
	for range 10 {
		_ = roundTrip(at(port), patience) // where it is refused, so are its clients
		if err := roundTrip(at(bystanderPort), patience); err != nil {
			t.Error(err)
		}
	}
	proxytest.Settled(t, func() int64 {
		info, err := os.Stat(s.connlog)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}, settled)
	connections, err := os.ReadFile(s.connlog)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{"connection log": string(connections), "log": s.proxy.Stderr.String(), "/metrics": s.page(t, metricsURL+"/metrics")} {
		longest := 0
		for one := range strings.Lines(text) {
			longest = max(longest, len(one))
		}
		if longest > line {
			t.Errorf("a line of the %s has %d bytes; want %d at most", what, longest, line)
		}
	}
	r := s.row(t, "a name of 1.4 MB", base)
	r.Refused = fmt.Sprintf("%.0f keys rejected", s.sum(t, "kubeproxy_rejected_keys"))
	r.judge(t)
}
