// Package recordstest makes records for tests, and reads what these log.
package recordstest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang/glog"
	"go.uber.org/goleak"

	"kubeproxy/registry"
)

// Spec is v0.4's key of a service.
func Spec(name string) string { return registry.SpecsPrefix + name }

// Ends is v0.4's key of the endpoints of a service.
func Ends(name string) string { return registry.EndpointsPrefix + name }

// Port is the record of a service with one port.
func Port(n int) string { return fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","port":%d}`, n) }

// Addrs is a record of endpoints.
func Addrs(list ...string) string {
	return fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":["%s"]}`, strings.Join(list, `","`))
}

// SliceKey is the key of an endpoint slice in namespace default.
func SliceKey(name string) string { return registry.EndpointSlicesPrefix + "default/" + name }

// Slice is an endpoint slice of a service. Its endpoints are host:port, all of one port, and "terminating host:port".
func Slice(service string, list ...string) string {
	var endpoints []string
	port := "1"
	for _, text := range list {
		condition := ""
		if rest, ok := strings.CutPrefix(text, "terminating "); ok {
			text, condition = rest, `,"conditions":{"ready":false,"serving":true,"terminating":true}`
		}
		var host string
		host, port, _ = strings.Cut(text, ":")
		endpoints = append(endpoints, fmt.Sprintf(`{"addresses":[%q]%s}`, host, condition))
	}
	return fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":%q}},`+
		`"addressType":"IPv4","endpoints":[%s],"ports":[{"port":%s}]}`, service, strings.Join(endpoints, ","), port)
}

// A Record is a key and its value.
type Record struct{ Key, Value string }

// Registry is one of n services with endpoints, of the usual size, in the order of the keys.
func Registry(n int) []Record {
	var all []Record
	for i := range n {
		name := fmt.Sprintf("service-%05d", i)
		all = append(all, Record{Ends(name), fmt.Sprintf(`{"kind":"Endpoints","id":%q,"creationTimestamp":null,"apiVersion":"v1beta1",`+
			`"endpoints":["10.244.1.%d:80","10.244.2.%d:80","10.244.3.%d:80"]}`, name, i%256, i%256, i%256)})
	}
	for i := range n {
		name := fmt.Sprintf("service-%05d", i)
		all = append(all, Record{Spec(name), fmt.Sprintf(`{"kind":"Service","id":%q,"creationTimestamp":"2014-11-19T21:24:20Z","apiVersion":"v1beta1","namespace":"default",`+
			`"port":%d,"protocol":"TCP","labels":{"name":%q},"selector":{"name":%q},"containerPort":80}`, name, 10000+i%20000, name, name)})
	}
	return all
}

// Main runs the tests of a package as its TestMain. The log goes to files in a directory that is removed in the end, for [LogSince], and a
// goroutine that is left fails the tests.
func Main(m *testing.M) {
	dir, err := os.MkdirTemp("", "records")
	if err == nil {
		err = errors.Join(flag.Set("log_dir", dir), flag.Set("stderrthreshold", "FATAL"))
	}
	if err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/golang/glog.(*fileSink).flushDaemon"),
		goleak.Cleanup(func(status int) {
			_ = os.RemoveAll(dir) // nothing depends on it
			os.Exit(status)
		}))
}

// LogSince returns a function that gives what was logged since. The log goes to files in -log_dir.
func LogSince(t testing.TB) func() string {
	t.Helper()
	read := func() string {
		glog.Flush()
		files, err := filepath.Glob(filepath.Join(flag.Lookup("log_dir").Value.String(), "*.INFO.*"))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(text)
		}
		return all.String()
	}
	before := len(read())
	return func() string { return read()[before:] }
}

// LogLines gives the messages of a part of the log that are no V lines, each after the letter of its severity: "W etcd at …".
func LogLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if _, message, ok := strings.Cut(line, "] "); ok && line[0] != 'L' { // the head of a log file
			lines = append(lines, line[:1]+" "+strings.TrimSpace(message))
		}
	}
	return lines
}

// ReportLatencies reports how long each of many changes took: half of them at most p50, and one in a hundred longer than p99.
func ReportLatencies(b *testing.B, took []time.Duration) {
	b.Helper()
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[(len(took)-1)*p/100])/float64(time.Millisecond), fmt.Sprintf("ms-p%d", p))
	}
}
