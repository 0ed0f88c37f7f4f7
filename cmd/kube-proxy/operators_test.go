package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// operatorsURL gives a free address, as the value of a flag and as a URL.
func operatorsURL(t *testing.T) (addr, url string) {
	t.Helper()
	addr = fmt.Sprintf("127.0.0.1:%d", proxytest.FreePort(t))
	return addr, "http://" + addr
}

// see asks for a page, and gives status 0 while there is no answer.
func see(t *testing.T, url string) (status int, body string) {
	t.Helper()
	client := http.Client{Timeout: proxytest.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// awaitPage waits until a page is answered so.
func awaitPage(t *testing.T, url string, status int, part string) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		got, body := see(t, url)
		return got == status && strings.Contains(body, part)
	}, "%s answers %d %q", url, status, part)
}

// TestOperatorsSeeTheWholeLifeOfANode: without etcd it lives and is not ready, with it it is, while it
// drains it says so, and when the last client has left it is gone.
func TestOperatorsSeeTheWholeLifeOfANode(t *testing.T) {
	s := newSite(t)
	s.etcd.Stop()
	healthz, at := operatorsURL(t)
	metrics, more := operatorsURL(t)
	p := s.start(t, "-healthz_bind_address="+healthz, "-metrics_bind_address="+metrics, "-drain_timeout=1h", "-metrics_endpoints")
	awaitPage(t, at+"/livez", 200, "ok")
	awaitPage(t, at+"/healthz", 200, "ok")
	awaitPage(t, at+"/readyz", 503, "nothing has been read from etcd")
	awaitPage(t, more+"/metrics", 200, "\nkubeproxy_ready 0\n")

	s.etcd.Start(t)
	s.opens(t)
	awaitPage(t, at+"/readyz", 200, "ok")
	c := s.talk(t)
	awaitPage(t, more+"/metrics", 200, "\nkubeproxy_ready 1\n")
	awaitPage(t, more+"/metrics", 200, `kubeproxy_objects{kind="service"} 1`)
	awaitPage(t, more+"/metrics", 200, `kubeproxy_connections_active{port_name="",service="default/chat"} `)
	awaitPage(t, more+"/metrics", 200, `kubeproxy_endpoint_active{endpoint="127.0.0.1:`)
	awaitPage(t, more+"/configz", 200, `"owner": "default/chat"`)
	awaitPage(t, more+"/version", 200, `"go": "go1.`)
	if status, _ := see(t, at+"/configz"); status != 404 {
		t.Errorf("the healthz address answers /configz with %d", status)
	}

	p.Signal(t, syscall.SIGTERM)
	s.closes(t)
	awaitPage(t, at+"/readyz", 503, "draining")
	awaitPage(t, at+"/healthz", 503, "draining")
	awaitPage(t, at+"/livez", 200, "ok")
	c.MustSay(t, "still here")
	c.Conn.Close()
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

// TestAnOldConfigurationIsNotReady, when -config_max_age says how old is too old; what is known goes on
// being served.
func TestAnOldConfigurationIsNotReady(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	addr, at := operatorsURL(t)
	s.serve(t, "-healthz_bind_address="+addr, "-config_max_age=10s")
	awaitPage(t, at+"/readyz", 200, "ok")
	s.etcd.Pause()
	awaitPage(t, at+"/readyz", 503, "-config_max_age is 10s")
	s.talk(t)
	s.etcd.Resume()
	awaitPage(t, at+"/readyz", 200, "ok")
}

// TestAnOperatorsPortThatIsTakenIsWaitedFor, and clients are served meanwhile.
func TestAnOperatorsPortThatIsTakenIsWaitedFor(t *testing.T) {
	s := newSite(t)
	for _, flag := range []string{"-healthz_bind_address", "-metrics_bind_address"} {
		taken, err := net.Listen("tcp", proxytest.On(proxytest.FreePort(t)).String()) // FreePort gives it to no other test
		if err != nil {
			t.Fatal(err)
		}
		defer taken.Close()
		p := s.serve(t, flag+"="+taken.Addr().String())
		s.talk(t).Conn.Close()
		p.Stderr.Wait(t, flag+": listen tcp "+taken.Addr().String())
		taken.Close()
		awaitPage(t, "http://"+taken.Addr().String()+"/readyz", 200, "ok")
		p.Signal(t, syscall.SIGTERM)
		if code := p.Exit(t).ExitCode(); code != exitDone {
			t.Errorf("exit status %d, want %d", code, exitDone)
		}
		s.closes(t)
	}
}

func TestAnOperatorsAddressThatCannotBeEndsTheStart(t *testing.T) {
	for _, flag := range []string{"-healthz_bind_address", "-metrics_bind_address"} {
		p := start(t, nil, "-etcd_servers=http://127.0.0.1:1", flag+"=203.0.113.1:10256") // of no machine
		if code := p.Exit(t).ExitCode(); code != exitFailed {
			t.Errorf("exit status %d, want %d", code, exitFailed)
		}
		if said := p.Stderr.String(); !strings.Contains(said, flag+": listen tcp 203.0.113.1:10256") {
			t.Errorf("said %q", said)
		}
	}
}

// TestNoServiceGetsTheOperatorsPort, whatever its record says.
func TestNoServiceGetsTheOperatorsPort(t *testing.T) {
	s := newSite(t)
	addr, at := operatorsURL(t)
	s.serve(t, "-healthz_bind_address="+addr)
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	s.put(t, registry.SpecsPrefix+"thief", `{"kind":"Service","apiVersion":"v1beta1","id":"thief","port":`+port+`}`)
	awaitPage(t, at+"/readyz", 200, "none may have: 1")
}

// logged waits for n lines of a connection log, and reads them.
func logged(t *testing.T, path string, n int) []map[string]any {
	t.Helper()
	var lines []map[string]any
	proxytest.Eventually(t, func() bool {
		text, err := os.ReadFile(path)
		if err != nil || strings.Count(string(text), "\n") < n {
			return false
		}
		lines = nil
		for line := range strings.Lines(string(text)) {
			var fields map[string]any
			if err := json.Unmarshal([]byte(line), &fields); err != nil {
				t.Fatalf("%v: %s", err, line)
			}
			lines = append(lines, fields)
		}
		return true
	}, "there are %d lines in %s", n, path)
	return lines
}

func TestConnectionLogOnStandardOutput(t *testing.T) {
	s := newSite(t)
	p := s.start(t, "-connection_log=-")
	p.Stderr.Wait(t, "listening for chat")
	s.talk(t).Conn.Close()
	p.Stdout.Wait(t, `"service":"default/chat"`)
}

// TestNobodyWhoReadsTheConnectionLogIsNoReasonToEnd: standard output is a pipe whose reader has left.
func TestNobodyWhoReadsTheConnectionLogIsNoReasonToEnd(t *testing.T) {
	s := newSite(t)
	p := s.start(t, "-connection_log=-")
	p.Stderr.Wait(t, "listening for chat")
	p.CloseStdout(t)
	s.talk(t).Conn.Close()
	p.Stderr.Wait(t, "connection log: 1 lines were lost: write /dev/stdout: broken pipe")
	s.talk(t)
}

func TestConnectionLogThatCannotBeOpenedEndsTheStart(t *testing.T) {
	p := start(t, nil, "-etcd_servers=http://127.0.0.1:1", "-connection_log=/nonexistent/log")
	if code := p.Exit(t).ExitCode(); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	if said := p.Stderr.String(); !strings.Contains(said, "-connection_log: open /nonexistent/log: no such file or directory\n") {
		t.Errorf("said %q", said)
	}
}

// TestTheReadOnlyUserOfTheManual runs the commands of docs/security.md against an etcd. The user that they
// make is enough for kube-proxy, and can do no more than read the services.
func TestTheReadOnlyUserOfTheManual(t *testing.T) {
	s := newSite(t)
	manual, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, password := range map[string]string{"root-password": "secret", "etcd-password": "sesame"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(password), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run := etcdctl(t, s.etcd.URL())
	commands := regexp.MustCompile(`(?m)^    etcdctl .*$`).FindAllString(string(manual), -1)
	if len(commands) != 7 {
		t.Fatalf("the manual has the commands %q; want 7", commands)
	}
	for _, command := range commands {
		if out, err := run(strings.ReplaceAll(command, "/etc/kube-proxy-classic", dir)); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
	}
	for command, want := range map[string]string{
		"get --prefix /registry/services/":  registry.SpecsPrefix + "chat",
		"put /registry/services/specs/x y":  "permission denied",
		"del /registry/services/specs/chat": "permission denied",
		"get /registry/pods/x":              "permission denied",
		"get --prefix /":                    "permission denied",
		"role list":                         "permission denied",
		"auth disable":                      "permission denied",
	} {
		if out, _ := run("etcdctl --user=kube-proxy:sesame " + command); !strings.Contains(out, want) {
			t.Errorf("%s as kube-proxy: got %q, want %q", command, out, want)
		}
	}
	s.serve(t, "-etcd_username=kube-proxy", "-etcd_password_file="+filepath.Join(dir, "etcd-password"))
	s.talk(t)
}

// etcdctl gives a shell in which etcdctl talks to an etcd.
func etcdctl(t *testing.T, url string) (run func(command string) (output string, err error)) {
	t.Helper()
	find := exec.Command("go", "tool", "-n", "go.etcd.io/etcd/etcdctl/v3")
	find.Env = append(os.Environ(), "CGO_ENABLED=0")
	path, err := find.Output()
	if err != nil {
		t.Fatalf("build etcdctl: %v", err)
	}
	dir := t.TempDir()
	if err := os.Symlink(strings.TrimSpace(string(path)), filepath.Join(dir, "etcdctl")); err != nil {
		t.Fatal(err)
	}
	return func(command string) (string, error) {
		shell := exec.Command("sh", "-c", command)
		shell.Env = append(os.Environ(), "ETCDCTL_ENDPOINTS="+url, "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := shell.CombinedOutput()
		return string(out), err
	}
}
