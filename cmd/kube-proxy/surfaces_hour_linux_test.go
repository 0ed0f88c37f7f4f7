package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// An hourStage is a node of which an operator has to find out what is wrong.
type hourStage struct {
	stage
	source string             // the flag that says what the node reads; "": files
	fault  func(*hourProgram) // what happens once the node is ready; nil: it is there from the start
	etcd   *etcdtest.Process
	bare   bool // the node has no right to ports below 1024: see startBare
}

type hourProgram struct {
	*testing.T
	*programtest.Program
}

// hourCases are faults that an operator meets in the first hours, beside those of [surfaceCases] (no endpoints, weights that are all 0, an endpoint
// that does not answer, a wrong check). In the sentences PORT stands for the port.
var hourCases = []struct {
	name  string
	stage func(*testing.T, *hourStage)
	ready bool   // the node is, in spite of it
	page  string // part of the first sentence
	log   string // part of a line
}{
	{"a record is no JSON", func(t *testing.T, s *hourStage) {
		writeRecord(t, s.dir, registry.SpecsPrefix+"other", `{"kind":"Service","port":80`)
	}, true, "The record /registry/services/specs/other is refused at revision 1: not valid JSON: ", "bad value of key \"/registry/services/specs/other\" at revision 1: not valid JSON: "},
	{"two services want one port", func(t *testing.T, s *hourStage) {
		writeRecord(t, s.dir, registry.SpecsPrefix+"other", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"other","port":%d}`, s.port))
	}, true, "default/web waits for tcp port PORT, which default/other has: give one of them another port.", "web cannot have tcp port PORT: other has it; waiting"},
	{"another program has the port", func(t *testing.T, s *hourStage) {
		held, err := net.Listen("tcp", proxytest.On(s.port).String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { held.Close() })
	}, true, "tcp port PORT of default/web is not open: another program has the port; ", "cannot listen for web on tcp port PORT: another program has the port; "},
	{"one of two endpoints does not answer", func(t *testing.T, s *hourStage) {
		writeRecord(t, s.dir, registry.EndpointsPrefix+"web", fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":"web","endpoints":[%q,%q]}`, s.chat(t), proxytest.Refusing(t)))
		s.fault = func(p *hourProgram) {
			for range 4 {
				proxytest.TalkTo(p, proxytest.On(s.port)).MustSay(p, "hello")
			}
		}
	}, true, " of default/web does not answer since ", " does not answer over tcp; ejected until it does"},
	{"the port takes a capability", func(t *testing.T, s *hourStage) {
		s.port, s.bare = 80, true
		s.service(t, "")
	}, false, "Give kube-proxy CAP_NET_BIND_SERVICE, as the first lines of its unit say, or give the service another port.", "cannot listen for web on tcp port PORT: listen tcp 127.0.0.1:PORT: bind: permission denied (ports below net.ipv4.ip_unprivileged_port_start take root or CAP_NET_BIND_SERVICE)"},
	{"etcd hangs", func(t *testing.T, s *hourStage) {
		s.fromEtcd(t)
		s.fault = func(*hourProgram) { s.etcd.Pause() }
		t.Cleanup(func() { s.etcd.Resume() })
	}, true, " cannot be read since ", "does not answer: watch silent, read failed: "},
	{"the URL of etcd has the wrong scheme", func(t *testing.T, s *hourStage) {
		s.fromEtcd(t)
		s.source = strings.Replace(s.source, "http:", "https:", 1)
	}, false, "if it is an etcd without TLS, its URL has to begin with http://", "if it is an etcd without TLS, its URL has to begin with http://"},
	{"all slices of a service are deleted", func(t *testing.T, s *hourStage) {
		if err := os.Remove(filepath.Join(s.dir, registry.EndpointsPrefix+"web")); err != nil {
			t.Fatal(err)
		}
		at := s.chat(t).IP
		writeRecord(t, s.dir, registry.EndpointSlicesPrefix+"default/web-1", fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4",
			"endpoints":[{"addresses":[%q]}],"ports":[{"port":%d}]}`, at.Addr(), at.Port()))
		s.fault = func(p *hourProgram) {
			if err := os.RemoveAll(filepath.Join(s.dir, registry.EndpointSlicesPrefix)); err != nil {
				p.Fatal(err)
			}
		}
	}, true, "default/web has no endpoints, and the next client of tcp port PORT will be turned away: write endpoints, or delete the service.", "endpoints default/web: 1 → 0 endpoints (went "},
	{"the configuration is no YAML any more", func(t *testing.T, s *hourStage) {
		path := filepath.Join(t.TempDir(), "config.yaml")
		write(t, path, "v: 0\n")
		s.args = []string{"-config=" + path, "-takeover=" + takeoverPath(t)}
		s.fault = func(p *hourProgram) {
			write(p.T, path, "v: [0\n")
			p.Signal(p, syscall.SIGUSR2)
		}
	}, true, "A reload failed at ", "the successor has ended (exit status 2); this process goes on"},
}

// fromEtcd has the node read an etcd with the service.
func (s *hourStage) fromEtcd(t *testing.T) {
	t.Helper()
	of := newSite(t)
	s.etcd, s.source = of.etcd, "-etcd_servers="+of.etcd.URL()
}

// TestEverySurfaceSaysWhatAnOperatorHasToFind: page, status and log name each fault.
func TestEverySurfaceSaysWhatAnOperatorHasToFind(t *testing.T) {
	if !proxytest.InOwnNetwork(t) { // or the machine may let everybody have port 80
		return
	}
	for _, c := range hourCases {
		t.Run(c.name, func(t *testing.T) {
			s := &hourStage{stage: stage{dir: t.TempDir(), port: proxytest.FreePort(t)}}
			s.source = "-registry_dir=" + s.dir
			s.service(t, "")
			s.endpoints(t, "", s.chat(t))
			c.stage(t, s)
			if !s.bare {
				t.Parallel()
			}
			address, url := operatorsURL(t)
			h := aHand(t)
			args := append([]string{s.source, "-bind_address=127.0.0.1", "-metrics_bind_address=" + address, "-control=" + h.path}, s.args...)
			began := start
			if s.bare {
				began = startBare
			}
			p := began(t, nil, args...)
			awaitPage(t, url+"/", http.StatusOK, "")
			if c.ready {
				awaitPage(t, url+"/readyz", http.StatusOK, "ok")
			}
			if s.fault != nil {
				s.fault(&hourProgram{t, p})
			}
			port := strings.NewReplacer("PORT", strconv.Itoa(int(s.port)))
			want := port.Replace(c.page)
			proxytest.Eventually(t, func() bool { return strings.Contains(verdictOf(t, url), want) }, "the page says %q; it says %q", want, verdictOf(t, url))
			p.Stderr.Wait(t, port.Replace(c.log))
			if fires, failed := slices.Contains(firing(t, url), "KubeProxyTakeoverFailed"), strings.Contains(want, "A reload failed"); fires != failed {
				t.Errorf("the alert of a reload that failed fires: %t; want %t", fires, failed)
			}
			h.agrees(url)
		})
	}
}

// TestADirectoryThatOthersMayWriteToIsNamed: a node whose sockets or state would be there does not start, and one line says why.
func TestADirectoryThatOthersMayWriteToIsNamed(t *testing.T) {
	dir := filepath.Dir(takeoverPath(t))
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	h := hand{t, filepath.Join(dir, controlName)}
	for _, flag := range []string{"-control=" + h.path, "-takeover=" + filepath.Join(dir, "takeover"), "-state_dir=" + dir} {
		p := start(t, nil, "-registry_dir="+t.TempDir(), flag)
		if code := p.Exit(t).ExitCode(); code != exitFailed {
			t.Errorf("%s: exit status %d; want %d", flag, code, exitFailed)
		}
		name, _, _ := strings.Cut(flag, "=")
		if lines := strings.Split(strings.TrimSpace(p.Stderr.String()), "\n"); !strings.Contains(lines[len(lines)-1], name) || !strings.Contains(lines[len(lines)-1], "other users may write to "+dir) {
			t.Errorf("%s: the last line is %q; want one that names the flag and the directory", flag, lines[len(lines)-1])
		}
	}
	h.want("status", exitFailed, "no kube-proxy listens there")
}

// startBare is start of a program without CAP_NET_BIND_SERVICE, also if the user is root. It is started by a thread that loses the capability first,
// and ends.
func startBare(t testing.TB, env []string, args ...string) (p *programtest.Program) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, unix.CAP_NET_BIND_SERVICE, 0, 0, 0); err != nil {
			t.Error(err)
		}
		p = start(t, env, args...)
	}()
	<-done
	return p
}
