package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"unicode"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A party is an etcd, a proxy, and the spec of a service "web" without endpoints.
type party struct {
	etcd  *etcdtest.Process
	port  uint16
	proxy *programtest.Program
}

func newParty(t *testing.T) *party {
	t.Helper()
	p := &party{etcd: etcdtest.StartProcess(t), port: proxytest.FreePort(t)}
	spec := fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"default"},"spec":{"ports":[{"name":"http","port":%d}]}}`, p.port)
	if _, err := p.etcd.Client(t).Put(t.Context(), registry.SpecsPrefix+"default/web", spec); err != nil {
		t.Fatal(err)
	}
	p.proxy = start(t, nil, "-etcd_servers="+p.etcd.URL(), "-bind_address=127.0.0.1")
	return p
}

// register registers an instance of the service at a port of 127.0.0.1.
func (p *party) register(t *testing.T, port uint16, args ...string) *programtest.Program {
	t.Helper()
	return programtest.Start(t, nil, "kube-proxy", append([]string{"register", "-etcd_servers=" + p.etcd.URL(),
		"-service=web", fmt.Sprintf("-port=http=%d", port), "-address=127.0.0.1", "-check_interval=100ms"}, args...)...)
}

func (p *party) answers(t *testing.T, want string) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		got, err := proxytest.AskTCP(proxytest.On(p.port))
		return err == nil && got == want
	}, "a client is answered by %s", want)
}

// run runs a word of kube-proxy to its end.
func (p *party) run(t *testing.T, word, service string) (status int, stdout string) {
	t.Helper()
	etcd := "-etcd_servers=" + p.etcd.URL()
	if word == "get" { // the file of a node's unit says it, too
		file := filepath.Join(t.TempDir(), "config.yaml")
		text := fmt.Sprintf("etcd_servers: [%s]\nallowed_ports: 1024-65535\ntakeover: /run/kube-proxy-classic/takeover.sock\n", p.etcd.URL())
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		etcd = "-config=" + file
	}
	program := programtest.Start(t, nil, "kube-proxy", word, etcd, service)
	state := program.Exit(t)
	return state.ExitCode(), program.Stdout.String() + program.Stderr.String()
}

// Endpoint slices come before a record of endpoints: a first slice would take all clients from endpoints that were written by hand.
func TestAnInstanceIsNotRegisteredWhileItWouldTakeTheClientsOfEndpointsWrittenByHand(t *testing.T) {
	p := newParty(t)
	byHand := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("by hand"))
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	client := p.etcd.Client(t)
	const flat, namespaced = registry.EndpointsPrefix + "web", registry.EndpointsPrefix + "default/web"
	put := func(key, ip string, port uint16) {
		t.Helper()
		value := fmt.Sprintf(`{"apiVersion":"v1","subsets":[{"addresses":[{"ip":%q}],"ports":[{"name":"http","port":%d}]}]}`, ip, port)
		if _, err := client.Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	put(registry.EndpointsPrefix+"shop/web", "10.0.0.1", 80) // of another service
	put(flat, "127.0.0.1", byHand.Addr.IP.Port())
	p.answers(t, "by hand")
	instance := p.register(t, one.Addr.IP.Port(), "-host=a")
	instance.Stderr.Wait(t, "not registered: the record "+flat+" lists 1 endpoints, which would lose all clients")
	instance.Stderr.Wait(t, "etcdctl del "+flat+". Or give -supersede_endpoints")
	if resp, err := client.Get(t.Context(), registry.EndpointSlicesPrefix, clientv3.WithPrefix()); err != nil || len(resp.Kvs) > 0 {
		t.Fatalf("etcd has slices: %v, %v", resp, err)
	}
	p.answers(t, "by hand")
	put(namespaced, "127.0.0.1", one.Addr.IP.Port()) // which comes first, and counts as well
	if _, err := client.Delete(t.Context(), flat); err != nil {
		t.Fatal(err)
	}
	instance.Stderr.Wait(t, "not registered: the record "+namespaced)
	if _, err := client.Delete(t.Context(), namespaced); err != nil {
		t.Fatal(err)
	}
	instance.Stderr.Wait(t, "registered at 127.0.0.1")
	put(flat, "127.0.0.1", byHand.Addr.IP.Port()) // has no effect beside a slice, so it stops nobody
	p.register(t, one.Addr.IP.Port(), "-host=b").Stderr.Wait(t, "registered at 127.0.0.1")
	p.answers(t, "one")
}

// The author of a record chooses its key and the names of its ports, and the terminal of who looks at it obeys control sequences: OSC 52 sets the
// clipboard, for one.
func TestGetAndRemovePrintNothingThatATerminalObeys(t *testing.T) {
	p := newParty(t)
	const hostile = "a\x1b]52;c;cm0gLXJm\x07\u202e\n\x9b2J"
	key := registry.EndpointSlicesPrefix + "default/" + hostile
	name, err := json.Marshal(hostile)
	if err != nil {
		t.Fatal(err)
	}
	value := fmt.Sprintf(`{"apiVersion":"discovery.k8s.io/v1","metadata":{"labels":{"kubernetes.io/service-name":"web"}},"addressType":"IPv4",
		"endpoints":[{"addresses":["10.0.0.1"],"nodeName":%[1]s},{"addresses":[%[1]s]}],"ports":[{"name":%[1]s,"port":80}]}`, name)
	spec := fmt.Sprintf(`{"port":80,"portName":%s}`, name)
	for key, value := range map[string]string{key: value, registry.SpecsPrefix + "web": spec} {
		if _, err := p.etcd.Client(t).Put(t.Context(), key, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, word := range []string{"get", "rm"} {
		_, text := p.run(t, word, "web")
		if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
			t.Errorf("%s prints %q", word, text)
		}
		if want := `"/registry/services/endpointslices/default/a\x1b]52;c;cm0gLXJm\a\u202e\n\x9b2J"`; !strings.Contains(text, want) {
			t.Errorf("%s prints %s; want %s in it", word, text, want)
		}
	}
}

func TestAnInstanceThatIsToSupersedeEndpointsIsRegistered(t *testing.T) {
	p := newParty(t)
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	if _, err := p.etcd.Client(t).Put(t.Context(), registry.EndpointsPrefix+"web", `{"endpoints":["10.0.0.1:80"]}`); err != nil {
		t.Fatal(err)
	}
	p.register(t, one.Addr.IP.Port(), "-supersede_endpoints")
	p.answers(t, "one")
}

func TestAnInstanceIsServedFromItsRegistrationToItsEnd(t *testing.T) {
	p := newParty(t)
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	two := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("two"))
	first := p.register(t, one.Addr.IP.Port(), "-host=a", "-drain=1s")
	p.answers(t, "one")
	second := p.register(t, two.Addr.IP.Port(), "-host=b", "-drain=1s")
	p.answers(t, "two")

	status, text := p.run(t, "get", "web")
	for _, want := range []string{
		`(?m)^RECORD +REVISION +LEASE +HOLDS$`,
		fmt.Sprintf(`(?m)^/registry/services/specs/default/web +\d+ +- +http tcp %d$`, p.port),
		fmt.Sprintf(`(?m)^/registry/services/endpointslices/default/web-\w+ +\d+ +1[0-9]s +http %s, on a$`, one.Addr),
		fmt.Sprintf(`(?m)^/registry/services/endpointslices/default/web-\w+ +\d+ +1[0-9]s +http %s, on b$`, two.Addr),
	} {
		if status != exitDone || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("exit status %d, and nothing like %s in\n%s", status, want, text)
		}
	}

	first.Signal(t, syscall.SIGTERM)
	if code := first.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d after SIGTERM\n%s", code, first.Stderr)
	}
	for range 4 {
		p.answers(t, "two")
	}
	two.Close()
	second.Stderr.Wait(t, "the check fails")
	proxytest.Eventually(t, func() bool { _, err := proxytest.AskTCP(proxytest.On(p.port)); return err != nil }, "nobody answers")

	if status, text := p.run(t, "rm", "default/web"); status != exitDone || strings.Count(text, "deleted /registry/services/") != 2 {
		t.Errorf("rm: exit status %d, and\n%s", status, text)
	}
	second.Signal(t, syscall.SIGTERM)
	second.Exit(t)
	if status, text := p.run(t, "get", "web"); status != exitFailed || !strings.Contains(text, "etcd holds no record of default/web") {
		t.Errorf("get of nothing: exit status %d, and\n%s", status, text)
	}
}

// TestInstancesThatAreRemovedAreNotKept: the deletion of records by hand is not the end of their leases.
func TestInstancesThatAreRemovedAreNotKept(t *testing.T) {
	p := newParty(t)
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	in := p.register(t, one.Addr.IP.Port(), "-check=none")
	p.answers(t, "one")
	in.Signal(t, syscall.SIGKILL)
	in.Exit(t)
	if status, text := p.run(t, "rm", "default/web"); status != exitDone {
		t.Errorf("rm: exit status %d, and\n%s", status, text)
	}
	proxytest.Eventually(t, func() bool { _, err := proxytest.AskTCP(proxytest.On(p.port)); return err != nil }, "the port is closed")
	p.proxy.Signal(t, syscall.SIGTERM)
	p.proxy.Exit(t) // then all of its log is written
	if text := p.proxy.Stderr.String(); strings.Contains(text, "the leases of all its instances have ended") {
		t.Errorf("the proxy keeps what was deleted:\n%s", text)
	}
}

func TestAPortThatTheServiceDoesNotHaveIsNamed(t *testing.T) {
	p := newParty(t)
	in := p.register(t, 8080, "-check=none", "-port=admin=9090", "-drain=0")
	in.Stderr.Wait(t, `proxies do not use port admin=9090: service web has no port of the name "admin", but one of the name "http"`)
	if _, text := p.run(t, "get", "web"); !strings.Contains(text, "admin 127.0.0.1:9090 (not used: the service has no port of this name), http 127.0.0.1:8080, on") {
		t.Errorf("get says\n%s", text)
	}
	if text := in.Stderr.String(); strings.Contains(text, "port http=8080:") {
		t.Errorf("it warns of the port that the service has:\n%s", text)
	}
	other := programtest.Start(t, nil, "kube-proxy", "register", "-etcd_servers="+p.etcd.URL(), "-service=shop/cart", "-port=80", "-address=127.0.0.1", "-check=none")
	other.Stderr.Wait(t, "there is no service shop/cart yet: proxies open its ports when /registry/services/specs/shop/cart is written")
}

func TestACommandIsRegisteredWhileItRunsAndItsStatusIsPassedOn(t *testing.T) {
	p := newParty(t)
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	in := p.register(t, server.Addr.IP.Port(), "-drain=10ms", "--", "sh", "-c", `trap "exit 7" TERM; while :; do sleep 0.05; done`)
	p.answers(t, "one")
	in.Signal(t, syscall.SIGTERM)
	if code := in.Exit(t).ExitCode(); code != 7 {
		t.Errorf("exit status %d; want 7, the command's\n%s", code, in.Stderr)
	}
	if _, text := p.run(t, "get", "web"); strings.Contains(text, "endpointslices") {
		t.Errorf("the record is still there:\n%s", text)
	}
	for line, want := range map[string]int{"exit 3": 3, "kill -9 $$": 128 + 9} {
		if code := p.register(t, server.Addr.IP.Port(), "--", "sh", "-c", line).Exit(t).ExitCode(); code != want {
			t.Errorf("exit status %d after %q; want %d", code, line, want)
		}
	}
}

func TestACommandGetsSIGHUPAndRunsOn(t *testing.T) {
	p := newParty(t)
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	in := p.register(t, server.Addr.IP.Port(), "-drain=10ms", "--", "sh", "-c", `trap "echo reloaded" HUP; trap "exit 7" TERM; echo ready; while :; do sleep 0.05; done`)
	in.Stdout.Wait(t, "ready\n")
	for n := range 2 {
		in.Signal(t, syscall.SIGHUP)
		in.Stdout.Wait(t, strings.Repeat("reloaded\n", n+1))
	}
	p.answers(t, "one")
	in.Signal(t, syscall.SIGTERM)
	if code := in.Exit(t).ExitCode(); code != 7 {
		t.Errorf("exit status %d; want 7, the command's\n%s", code, in.Stderr)
	}
}

func TestAServiceIsServedAfterItsRegistrarsHaveDied(t *testing.T) {
	t.Parallel()
	p := newParty(t)
	server := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify("one"))
	in := p.register(t, server.Addr.IP.Port(), "-ttl=5s")
	p.answers(t, "one")
	in.Signal(t, syscall.SIGKILL)
	in.Exit(t)
	proxytest.Eventually(t, func() bool {
		_, text := p.run(t, "get", "web")
		return !strings.Contains(text, "endpointslices")
	}, "the lease ends")
	p.proxy.Stderr.Wait(t, "the leases of all its instances have ended")
	p.answers(t, "one")
}
