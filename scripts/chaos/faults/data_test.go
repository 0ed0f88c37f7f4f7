package faults

import (
	"context"
	"testing"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// header is what etcd says about itself with each answer.
func header(t *testing.T, c Target) (h *etcdserverpb.ResponseHeader) {
	t.Helper()
	err := c.Do(t.Context(), "read", func(ctx context.Context, client *clientv3.Client) error {
		r, err := client.Get(ctx, "/")
		if err == nil {
			h = r.Header
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// TestRestoreGoesBackToTheRevisionItSays: what was written after the snapshot is gone, and the harness
// is told exactly how much remains.
func TestRestoreGoesBackToTheRevisionItSays(t *testing.T) {
	c, h := begin(t, 1)
	snapshot := write(t, c)
	for range 3 {
		write(t, c)
	}
	h.during = func(int) { snapshot = h.Head() } // the fault writes between snapshot and restore
	inject(t, c, "restore", seed(1))
	if got := header(t, c).Revision; got != snapshot || len(h.keeps) != 1 || h.keeps[0] != snapshot {
		t.Errorf("etcd is at revision %d and said %v; want the snapshot's %d", got, h.keeps, snapshot)
	}
}

// TestAWipedEtcdLooksTheSame: and a replaced one does not. Both are empty.
func TestAWipedEtcdLooksTheSame(t *testing.T) {
	c, h := begin(t, 1)
	before := header(t, c)
	for _, tt := range []struct {
		fault string
		same  bool
	}{{"wipe", true}, {"replace", false}} {
		write(t, c)
		inject(t, c, tt.fault, seed(1))
		after := header(t, c)
		if after.Revision != 1 || (after.ClusterId == before.ClusterId) != tt.same {
			t.Errorf("after %s: revision %d, the same cluster: %t", tt.fault, after.Revision, after.ClusterId == before.ClusterId)
		}
	}
	if h.keeps[0] != 0 || h.keeps[1] != 0 {
		t.Errorf("kept %v; want nothing", h.keeps)
	}
}

// TestALostMemberComesBackAsAnother: and with everything that it had lost.
func TestALostMemberComesBackAsAnother(t *testing.T) {
	c, _ := begin(t, 3)
	revision := write(t, c)
	status := func(m *Member) *clientv3.StatusResponse {
		client, err := Dial(t.Context(), m.Client)
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		st, err := client.Status(t.Context(), m.Client)
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	var before []uint64
	for _, m := range c.Members {
		before = append(before, status(m).Header.MemberId)
	}
	inject(t, c, "lose-member", seed(1))
	others := 0
	for i, m := range c.Members {
		st := status(m)
		if st.Header.MemberId != before[i] {
			others++
		}
		if st.Header.Revision < revision {
			t.Errorf("%s knows revision %d; want %d", m.Name, st.Header.Revision, revision)
		}
	}
	if others != 1 {
		t.Errorf("%d members have another id; want one", others)
	}
}
