package etcdsource

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

func TestReadIsOneSnapshotHoweverManyPagesItHas(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	for i := range 10 {
		put(t, c, spec(fmt.Sprintf("s%d", i)), port(100))
	}
	put(t, c, "/registry/pods/x", "not ours")
	m := newMiddleman(t, c)
	pages := 0
	m.hook(func(m *middleman) {
		m.onRange = func(req *etcdserverpb.RangeRequest, etcd answerer) (*etcdserverpb.RangeResponse, error) {
			pages++
			for i := range 10 {
				put(t, c, spec(fmt.Sprintf("s%d", i)), port(100+pages))
			}
			if req.Serializable {
				t.Error("asked for an answer that may be old")
			}
			return etcd(req)
		}
	})
	cfg := quick(m.url)
	cfg.Weak = true
	s, err := Read(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Keys) != 10 || s.Revision == 0 {
		t.Fatalf("%d keys at revision %d; want 10", len(s.Keys), s.Revision)
	}
	for i, k := range s.Keys {
		if want := spec(fmt.Sprintf("s%d", i)); string(k.Key) != want || string(k.Value) != port(101) || k.Created == 0 || k.Created >= s.Revision {
			t.Errorf("key %d is %+v at revision %d; want %s with port 101", i, k, s.Revision, want)
		}
	}
	m.hook(func(*middleman) {
		if pages != 4 {
			t.Errorf("%d pages; want 4 of 3 keys", pages)
		}
	})
}

func TestReadSaysWhyItCannot(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	t.Run("etcd does not answer", func(t *testing.T) {
		etcd.Pause()
		defer etcd.Resume()
		because := errors.New("no answer for a while")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, because)
		defer cancel()
		if _, err := Read(ctx, quick(etcd.URL())); !errors.Is(err, because) {
			t.Errorf("error %v, want %v", err, because)
		}
	})
	t.Run("nobody listens", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listener.Close()
		if _, err := Read(t.Context(), quick(listener.Addr().String())); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("error %v", err)
		}
	})
	t.Run("the config is wrong", func(t *testing.T) {
		if _, err := Read(t.Context(), Config{}); err == nil || err.Error() != "no etcd URL" {
			t.Errorf("error %v", err)
		}
	})
	t.Run("it is not allowed to", func(t *testing.T) {
		etcdtest.EnableAuth(t, etcd.Client(t), "rootpw", "reader", "secret", registry.Prefix+"other/")
		cfg := quick(etcd.URL())
		cfg.Username, cfg.Password = "reader", "secret"
		cfg.DialTimeout = 30 * time.Second // to check a password is meant to be slow
		if _, err := Read(t.Context(), cfg); !errors.Is(err, rpctypes.ErrPermissionDenied) {
			t.Errorf("error %v", err)
		}
	})
}
