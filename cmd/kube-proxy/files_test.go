package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A node without any etcd serves what lies in a directory, from the moment at which it is there.
func TestADirectoryIsARegistry(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry-of-files")
	port := proxytest.FreePort(t)
	p := start(t, nil, "-registry_dir="+dir, "-bind_address=127.0.0.1", "-dial_timeout=15s", "-dial_total_timeout=15s")
	p.Stderr.Wait(t, "create it, or mount the volume that it should be")
	endpoint := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("a"))
	putFile(t, dir, registry.EndpointsPrefix+"chat", fmt.Appendf(nil, `{"kind":"Endpoints","apiVersion":"v1beta1","endpoints":[%q]}`, endpoint.Addr))
	putFile(t, dir, registry.SpecsPrefix+"chat", fmt.Appendf(nil, `{"kind":"Service","apiVersion":"v1beta1","port":%d}`, port))
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "port %d opens", port)
	c := proxytest.TalkTo(t, proxytest.On(port))
	c.MustSay(t, "hello")
	c.Conn.Close()
	if err := os.Remove(filepath.Join(dir, registry.SpecsPrefix, "chat")); err != nil {
		t.Fatal(err)
	}
	proxytest.Eventually(t, func() bool { return !proxytest.Listens(proxytest.On(port)) }, "port %d closes", port)
	p.Signal(t, syscall.SIGTERM)
	if code := p.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want %d", code, exitDone)
	}
}

// A record in etcd comes before a file of the same name; the file waits, and takes its place.
func TestEtcdComesBeforeADirectory(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	other := proxytest.FreePort(t)
	putFile(t, dir, registry.SpecsPrefix+"chat", fmt.Appendf(nil, `{"kind":"Service","apiVersion":"v1beta1","port":%d}`, other))
	s.serve(t, "-registry_dir="+dir)
	if proxytest.Listens(proxytest.On(other)) {
		t.Error("the file takes effect beside the record of the same name")
	}
	s.withdraw(t)
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(other)) }, "port %d opens", other)
}

func TestAFileAsRegistryDirEndsTheStart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "-registry_dir="+file)
	if code := p.Exit(t).ExitCode(); code != exitFailed {
		t.Errorf("exit status %d, want %d", code, exitFailed)
	}
	p.Stderr.Wait(t, fmt.Sprintf("-registry_dir: directory %q: not a directory\n", file))
}

func TestCheckReadsTheDirectoryOfTheFlag(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir, registry.SpecsPrefix+"web", []byte(`{"kind":"Service","apiVersion":"v1beta1","port":8000}`))
	if exit, report := checked(t, "-registry_dir="+dir); exit != exitDone || len(report.Records) != 1 {
		t.Errorf("exit status %d, %+v", exit, report)
	}
}

// TestCheckRefusesInADirectoryWhatANodeRefusesThere: keys that elect need an etcd 3. A directory that is given as an argument is a copy of any registry.
func TestCheckRefusesInADirectoryWhatANodeRefusesThere(t *testing.T) {
	for _, elects := range []struct{ annotation, flag string }{
		{`"kube-proxy/holder-key":"/service/pg/leader"`, "-holder_keys=/service/"},
		{`"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary"`, "-patroni=/service/"},
	} {
		dir := t.TempDir()
		putFile(t, dir, registry.SpecsPrefix+"pg", []byte(`{"kind":"Service","apiVersion":"v1beta1","port":8000,"annotations":{`+elects.annotation+`}}`))
		for _, source := range []string{"-registry_dir=" + dir, dir} {
			exit, report := checked(t, elects.flag, source)
			if refused := len(report.Records) == 1 && strings.Contains(fmt.Sprint(report.Records), "this source is no etcd 3"); refused != (source != dir) {
				t.Errorf("%s %s: exit status %d, %+v", source, elects.flag, exit, report.Records)
			}
		}
	}
}
