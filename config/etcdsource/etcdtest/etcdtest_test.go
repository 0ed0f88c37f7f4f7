package etcdtest_test

import (
	"testing"

	"go.uber.org/goleak"

	"kubeproxy/config/etcdsource/etcdtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAProcessKeepsItsDataAndItsAddressThroughAKill(t *testing.T) {
	p := etcdtest.StartProcess(t)
	url := p.URL()
	if _, err := p.Client(t).Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	p.Kill() // safe twice
	p.Start(t)
	if p.URL() != url {
		t.Errorf("it was at %s and is at %s now", url, p.URL())
	}
	resp, err := p.Client(t).Get(t.Context(), "k")
	if err != nil || len(resp.Kvs) != 1 || string(resp.Kvs[0].Value) != "v" {
		t.Errorf("got %v, %v; want the value from before", resp, err)
	}
	p.Pause()
	p.Stop()
}

func TestAProcessStartsOnAnotherDirectory(t *testing.T) {
	p := etcdtest.StartProcess(t)
	if _, err := p.Client(t).Put(t.Context(), "k", "v"); err != nil {
		t.Fatal(err)
	}
	p.Stop()
	old := p.SwapDataDir(t.TempDir())
	p.Start(t)
	if resp, err := p.Client(t).Get(t.Context(), "k"); err != nil || len(resp.Kvs) != 0 {
		t.Errorf("got %v, %v; want an empty etcd", resp, err)
	}
	p.Kill()
	p.SwapDataDir(old)
	p.Start(t)
	if resp, err := p.Client(t).Get(t.Context(), "k"); err != nil || len(resp.Kvs) != 1 {
		t.Errorf("got %v, %v; want the old data", resp, err)
	}
}
