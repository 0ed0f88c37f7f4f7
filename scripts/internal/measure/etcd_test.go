//go:build linux

package measure

import "testing"

func TestAnEtcdThatWasKilledGoesOnWithItsData(t *testing.T) {
	ps := &Processes{Dir: t.TempDir()}
	defer ps.Stop()
	etcd, err := NewEtcd(ps, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	c, err := NewEtcdClient(etcd.URL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Fatal(err)
	}
	c.Close()
	first := etcd.PID()
	etcd.Kill()
	etcd.Kill() // again: whoever has its number now is left alone
	if err := etcd.Start(); err != nil {
		t.Fatal(err)
	}
	if etcd.PID() == first {
		t.Error("it was not started again")
	}
	if c, err = NewEtcdClient(etcd.URL); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if resp, err := c.Get(t.Context(), "key"); err != nil || resp.Count != 1 {
		t.Errorf("%v, %v; want the key that was put before", resp, err)
	}
}
