package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// TestANodeThatStartsWithoutEtcdServesWhatItServedBefore: the state is saved at the end, served while etcd is away, and gives way to what
// etcd holds without a client of a service that has not changed being refused.
func TestANodeThatStartsWithoutEtcdServesWhatItServedBefore(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	dir := filepath.Join(t.TempDir(), "state")
	metrics, url := operatorsURL(t)
	args := []string{"-state_dir=" + dir, "-metrics_bind_address=" + metrics, "-healthz_bind_address=", "-drain_timeout=0"}
	gone := proxytest.FreePort(t)
	s.put(t, registry.SpecsPrefix+"gone", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"gone","port":%d}`, gone))
	p := s.serve(t, args...)
	proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(gone)) }, "port %d opens", gone)
	awaitPage(t, url+"/readyz", http.StatusOK, "ok") // only a state that is in force is saved
	p.Signal(t, syscall.SIGTERM)
	p.Exit(t)

	if _, err := s.kv.Delete(t.Context(), registry.SpecsPrefix+"gone"); err != nil {
		t.Fatal(err)
	}
	s.etcd.Kill()
	s.serve(t, args...)
	s.talk(t).Conn.Close()
	awaitPage(t, url+"/readyz", http.StatusOK, "stale: nothing has been read from etcd")
	awaitPage(t, url+"/metrics", http.StatusOK, "\nkubeproxy_config_stale 1\n")

	refused := make(chan bool, 1)
	stop := make(chan struct{})
	go func() {
		// A client that does not pause would use up the local ports, for each connection keeps one for a minute.
		pause := time.NewTicker(5 * time.Millisecond)
		defer pause.Stop()
		for {
			select {
			case <-stop:
				refused <- false
				return
			case <-pause.C:
			}
			if !proxytest.Listens(proxytest.On(s.port)) {
				refused <- true
				return
			}
		}
	}()
	s.etcd.Start(t)
	proxytest.Eventually(t, func() bool { return !proxytest.Listens(proxytest.On(gone)) }, "port %d closes, since its service is gone", gone)
	awaitPage(t, url+"/metrics", http.StatusOK, "\nkubeproxy_config_stale 0\n")
	close(stop)
	if <-refused {
		t.Error("a client of a service that has not changed was refused")
	}
}

func TestAStateThatCannotBeUsedEndsNothing(t *testing.T) {
	s := newSite(t)
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "kube-proxy.state")
	if err := os.WriteFile(path, []byte("half a st"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.etcd.Kill()
	p := s.start(t, "-state_dir="+dir)
	p.Stderr.Wait(t, "the saved state is set aside as "+path+".bad")
	s.etcd.Start(t)
	s.opens(t)
}

func TestADirectoryForTheStateThatOthersMayWriteToEndsTheStart(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	p := start(t, nil, "-etcd_servers=http://127.0.0.1:1", "-state_dir="+dir)
	if code := p.Exit(t).ExitCode(); code != exitFailed || !strings.Contains(p.Stderr.String(), "-state_dir: other users may write to "+dir) {
		t.Errorf("exit status %d, and %s", code, p.Stderr)
	}
}
