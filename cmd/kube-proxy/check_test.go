package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"kubeproxy/cmd/internal/check"
	"kubeproxy/cmd/internal/inert"
	"kubeproxy/config/etcdsource/etcdtest"
)

// checked runs "kube-proxy check -o json" and gives its exit status and its report.
func checked(t *testing.T, args ...string) (int, check.Report) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	exit := runCheck(append([]string{"-o", "json"}, args...), &stdout, &stderr)
	if stderr.Len() > 0 {
		t.Fatalf("check %q: exit status %d, %s", args, exit, stderr.String())
	}
	var report check.Report
	if err := json.Unmarshal(stdout.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	return exit, report
}

// put lays a value down where its key says.
func putFile(t *testing.T, dir, key string, value []byte) {
	t.Helper()
	at := filepath.Join(dir, filepath.FromSlash(key))
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at, value, 0o644); err != nil {
		t.Fatal(err)
	}
}

// A fixture is a record, good or bad, and what is wanted of it.
type fixture struct {
	File string `json:"file"`
	Key  string `json:"key"`
	Want struct {
		Result string `json:"result"`
	} `json:"want"`
}

// TestCheckNamesEachBadFixtureAndItsReason lays the fixtures out in one directory, each under a name
// of its own, since most of them share a key.
func TestCheckNamesEachBadFixtureAndItsReason(t *testing.T) {
	const fixtures = "../../registry/decode/testdata/fixtures"
	text, err := os.ReadFile(filepath.Join(fixtures, "expectations.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []fixture
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	dir, want := t.TempDir(), make(map[string]fixture)
	for _, f := range all {
		value, err := os.ReadFile(filepath.Join(fixtures, f.File))
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Key, "/") {
			continue // no file can be called so: TestCheckReadsAnEtcd has such a key
		}
		key := path.Join(path.Dir(f.Key), strings.TrimSuffix(f.File, ".json"))
		putFile(t, dir, key, value)
		want[key] = f
	}
	exit, report := checked(t, dir)
	if exit != exitFailed {
		t.Errorf("exit status %d, want %d", exit, exitFailed)
	}
	rejected := 0
	for _, v := range report.Records {
		f, ok := want[v.Key]
		if !ok {
			t.Errorf("nobody wrote %s", v.Key)
		}
		delete(want, v.Key)
		reason := ""
		for _, finding := range v.Findings {
			if finding.Code == check.BadRecord || finding.Code == check.BadKey {
				reason = finding.Text
			}
		}
		bad := v.Verdict == check.Error && reason != ""
		if f.Want.Result == "reject" {
			rejected++
		}
		if f.Want.Result != "either" && bad != (f.Want.Result == "reject") {
			t.Errorf("%s is wanted to be judged %s, and is judged %s (%s)", f.File, f.Want.Result, v.Verdict, reason)
		}
	}
	if len(want) > 0 || rejected < 40 {
		t.Errorf("%d bad records; without a verdict are %v", rejected, want)
	}
}

// TestTheHelpOfCheckNamesEachAddressThatItKeepsFromServices: without its flag, check calls a port free that a node has taken.
func TestTheHelpOfCheckNamesEachAddressThatItKeepsFromServices(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if exit := runCheck([]string{"-help"}, &stdout, &stderr); exit != exitDone {
		t.Fatalf("exit status %d: %s", exit, &stderr)
	}
	for _, flag := range []string{"healthz_bind_address", "metrics_bind_address", "metrics_only_bind_address"} {
		if !strings.Contains(stdout.String()+stderr.String(), "-"+flag+" ") {
			t.Errorf("-%s is not in the help", flag)
		}
		o := newCheck()
		if err := o.commandLine().Parse([]string{"-" + flag + "=127.0.0.1:12345", t.TempDir()}); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(o.guards().ReservedPorts, 12345) {
			t.Errorf("-%s keeps no port from services", flag)
		}
	}
}

// TestCheckFindsNothingWrongInWhatV04Wrote takes the last version of each captured record, as a
// master of v0.4.4 left them in etcd.
func TestCheckFindsNothingWrongInWhatV04Wrote(t *testing.T) {
	for _, storage := range []string{"v1beta1", "v1beta2"} {
		dir := t.TempDir()
		for _, c := range capturedRecords(t) { // in the order in which they were written
			if c.storage == storage {
				putFile(t, dir, c.key(), c.value)
			}
		}
		exit, report := checked(t, dir)
		if exit != exitDone || report.Summary.Errors > 0 || report.Summary.Records < 2 {
			t.Errorf("%s: exit status %d, %+v", storage, exit, report)
		}
	}
}

func TestCheckReadsAnEtcd(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	put := func(key, value string) {
		t.Helper()
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	exit, report := checked(t, "-etcd_servers="+etcd.URL())
	if exit != exitDone || report.Summary.Records != 0 || report.Findings[0].Code != check.NoRecords {
		t.Errorf("an empty etcd: exit status %d, %+v", exit, report)
	}

	put("/registry/services/specs/b", `{"port":8000}`) // the older, and second by name
	put("/registry/services/specs/a", `{"port":8000}`)
	put("/registry/services/specs/", `{"port":8001}`)
	put("/registry/services/specs/binary\x00\xff\n", "k8s\x00\x01\x02")
	put("/registry/pods/x", "not ours")
	exit, report = checked(t, "-etcd_servers="+etcd.URL())
	if exit != exitFailed || report.Revision != 6 || len(report.Records) != 4 {
		t.Fatalf("exit status %d, %+v", exit, report)
	}
	for i, want := range []struct {
		key, verdict string
		code         check.Code
		text         string
	}{
		{"/registry/services/specs/", check.Error, check.BadKey, "empty name in key"},
		{"/registry/services/specs/a", check.Error, check.PortConflict, "tcp 8000 belongs to b, whose claim is older"},
		{"/registry/services/specs/b", check.Warning, check.NoEndpoints, "there are no endpoints of this name"},
		{`"/registry/services/specs/binary\x00\xff\n"`, check.Error, check.BadRecord, "not a valid protobuf value: envelope has a field that is malformed"},
	} {
		v := report.Records[i]
		if v.Key != want.key || v.Verdict != want.verdict || v.Findings[0].Code != want.code || v.Findings[0].Text != want.text {
			t.Errorf("%+v, want %+v", v, want)
		}
	}
}

// TestCheckComparesTwoRegistries: a mirror without differences, one that lacks a key, and a directory.
func TestCheckComparesTwoRegistries(t *testing.T) {
	one, other := etcdtest.StartProcess(t), etcdtest.StartProcess(t)
	const web, api = "/registry/services/specs/web", "/registry/services/specs/api"
	dir := t.TempDir()
	for i, key := range []string{web, api} {
		value := fmt.Sprintf(`{"port":%d}`, 8000+i)
		putFile(t, dir, key, []byte(value+"\n"))
		for _, etcd := range []*etcdtest.Process{one, other} {
			if _, err := etcd.Client(t).Put(t.Context(), key, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	servers := "-etcd_servers=" + one.URL()
	for _, args := range [][]string{{servers, "-against=" + other.URL()}, {servers, "-against=" + dir}, {"-against=" + one.URL(), dir}, {"-against=" + dir, dir}} {
		if exit, report := checked(t, args...); exit != exitDone || report.Summary.Errors > 0 || report.Against == "" {
			t.Errorf("%q: exit status %d, %+v", args, exit, report)
		}
	}
	if _, err := other.Client(t).Delete(t.Context(), web); err != nil {
		t.Fatal(err)
	}
	exit, report := checked(t, servers, "-against="+other.URL())
	if v := report.Records[1]; exit != exitFailed || v.Key != web || v.Findings[0].Code != check.OnlyHere || report.Summary.Errors != 1 {
		t.Errorf("exit status %d, %+v", exit, report)
	}
	for _, args := range [][]string{{servers, "-against=" + other.URL() + ",http://"}, {servers, "-against=a,b"}, {"-against=https://10.0.0.1:2379", "-etcd_cafile=ca.pem", "-etcd_insecure_skip_tls_verify", dir}, {"-against=http://10.0.0.1:2379", "-etcd_username=scott", dir}} {
		var stdout, stderr bytes.Buffer
		if exit := runCheck(args, &stdout, &stderr); exit != exitUsage || stdout.Len() > 0 {
			t.Errorf("%q: exit status %d, %s", args, exit, stderr.String())
		}
	}
	file := filepath.Join(dir, "etcd.json")
	if err := os.WriteFile(file, []byte(`{"cluster":{"machines":["https://127.0.0.1:1"]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{servers, "-against=" + filepath.Join(dir, "missing")}, {"-against=" + one.URL(), "-etcd_cafile=ca.pem", dir}} {
		var stdout, stderr bytes.Buffer
		if exit := runCheck(args, &stdout, &stderr); exit != exitFailed || !strings.Contains(stderr.String(), "-against: ") || stdout.Len() > 0 {
			t.Errorf("%q: exit status %d, %s", args, exit, stderr.String())
		}
	}
	o := newCheck()
	o.source.etcd.configFile, o.against = file, []string{one.URL()}
	if _, err := o.otherRegistry(t.Context(), io.Discard); err == nil || !strings.Contains(err.Error(), "https is in none of its URLs") {
		t.Errorf("an etcd without TLS in the place of one with it: %v", err)
	}
}

// The proxy dials the pages for its operators for no client, whatever services are bound to: check says so of
// the very addresses that the command line names.
func TestCheckKnowsTheOperatorsPortsForListenersOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir, "/registry/services/specs/web", []byte(`{"port":8000}`))
	putFile(t, dir, "/registry/services/endpoints/web", []byte(`{"endpoints":["127.0.0.1:7001","127.0.0.1:7002","127.0.0.1:10249"]}`))
	exit, report := checked(t, "-bind_address=192.0.2.1", "-healthz_bind_address=0.0.0.0:7001", "-metrics_bind_address=127.0.0.1:7002", dir)
	const want = "the proxy's own listeners: tcp 127.0.0.1:7001, tcp 127.0.0.1:7002"
	if f := report.Records[0].Findings; exit != exitFailed || len(f) != 1 || f[0].Code != check.OwnListener || f[0].Text != want {
		t.Errorf("exit status %d, %+v; want %s", exit, f, want)
	}
}

// 10,000 services, each with endpoints, are many pages, and one revision.
func TestCheckOfTenThousandServices(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	client := etcd.Client(t)
	const services, together = 10_000, 50 // a transaction of etcd has at most 128 operations
	for i := 0; i < services; i += together {
		var ops []clientv3.Op
		for n := i; n < i+together; n++ {
			ops = append(ops,
				clientv3.OpPut(fmt.Sprintf("/registry/services/specs/s%05d", n), fmt.Sprintf(`{"port":%d}`, 10_000+n)),
				clientv3.OpPut(fmt.Sprintf("/registry/services/endpoints/s%05d", n), `{"endpoints":["10.0.0.1:80","10.0.0.2:80"]}`))
		}
		if _, err := client.Txn(t.Context()).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	exit, report := checked(t, "-timeout=1m", "-etcd_servers="+etcd.URL(), "-healthz_bind_address=", "-metrics_bind_address=") // whose ports are among these
	t.Logf("checked in %v", time.Since(start))
	if s := report.Summary; exit != exitDone || s.OK != 2*services || s.Listeners != services || report.Revision != 1+services/together {
		t.Errorf("exit status %d, revision %d, %+v", exit, report.Revision, s)
	}
}

func TestCheckDoesNotWaitForEverForEtcd(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	etcd.Pause()
	defer etcd.Resume()
	p := start(t, nil, "check", "-timeout=500ms", "-etcd_servers="+etcd.URL())
	if got := p.Exit(t).ExitCode(); got != exitFailed {
		t.Errorf("exit status %d, want %d", got, exitFailed)
	}
	if got, want := p.Stderr.String(), "kube-proxy check: read etcd at ["+etcd.URL()+"]: no answer for 500ms\n"; got != want || p.Stdout.String() != "" {
		t.Errorf("standard error %q, want %q; standard output %q", got, want, p.Stdout)
	}
}

// A disk that is full must not look like a registry that is empty.
// TestCheckPrintsNothingThatATerminalObeys, whatever answers in the place of an etcd.
func TestCheckPrintsNothingThatATerminalObeys(t *testing.T) {
	const hostile = "a\x1b]52;c;cm0gLXJm\x07\u202e"
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v3 := grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error { return status.Error(codes.PermissionDenied, hostile) }))
	go v3.Serve(listener)
	defer v3.Stop()
	v2 := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(map[string]any{"errorCode": 110, "message": hostile})
	}))
	defer v2.Close()
	for version, server := range map[string]string{"3": "http://" + listener.Addr().String(), "2": v2.URL} {
		var stdout, stderr bytes.Buffer
		if exit := runCheck([]string{"-etcd_version=" + version, "-etcd_servers=" + server}, &stdout, &stderr); exit != exitFailed {
			t.Errorf("etcd %s: exit status %d", version, exit)
		}
		text := stdout.String() + stderr.String()
		if i := strings.IndexFunc(text, func(r rune) bool { return !inert.Shows(r) }); i >= 0 || !strings.Contains(text, "52;c") {
			t.Errorf("etcd %s: it prints %q", version, text)
		}
	}
}

func TestAReportThatCannotBeWrittenIsAFailure(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("this system has no /dev/full: %v", err)
	}
	defer full.Close()
	dir := t.TempDir()
	putFile(t, dir, "/registry/services/specs/web", []byte(`{"port":8000}`))
	for _, output := range []string{"text", "json"} {
		var stderr bytes.Buffer
		if exit := runCheck([]string{"-o", output, dir}, full, &stderr); exit != exitFailed || !strings.HasPrefix(stderr.String(), "kube-proxy check: write ") {
			t.Errorf("%s: exit status %d, %s", output, exit, stderr.String())
		}
	}
}

func TestACheckFailsForAMisspeltFieldThatEmptiesAService(t *testing.T) {
	for what, test := range map[string]struct {
		endpoints, spec string
		exit            int
	}{
		"nothing":    {`{"endpoints":["10.0.0.1:80"]}`, `{"port":8000}`, exitDone},
		"endpoints":  {`{"endpoint":["10.0.0.1:80"]}`, `{"port":8000}`, exitFailed},
		"the port":   {`{"endpoints":["10.0.0.1:80"]}`, `{"prot":8000}`, exitFailed},
		"a selector": {`{"endpoints":["10.0.0.1:80"]}`, `{"port":8000,"selektor":{}}`, exitDone},
	} {
		dir := t.TempDir()
		putFile(t, dir, "/registry/services/endpoints/web", []byte(test.endpoints))
		putFile(t, dir, "/registry/services/specs/web", []byte(test.spec))
		if exit, report := checked(t, dir); exit != test.exit {
			t.Errorf("%s misspelt: exit status %d, want %d: %+v", what, exit, test.exit, report)
		}
	}
}
