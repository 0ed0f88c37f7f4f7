package faults

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"kubeproxy/registry"
)

// TestAuthenticationIsOnForALongToken: while it is on, who has no user is turned away, the proxy's user may
// read and not write, and an unused token has expired before it is turned off.
func TestAuthenticationIsOnForALongToken(t *testing.T) {
	c, h := begin(t, 1)
	noUser := clientOf(t, c.Cluster)
	var proxy *clientv3.Client
	var token string
	var began time.Time
	calls := 0
	h.during = func(int) {
		switch calls++; calls {
		case 1:
			began = time.Now()
			if err := readRegistry(t, noUser, stepTimeout); !errors.Is(err, rpctypes.ErrUserEmpty) {
				t.Errorf("without a user: %v", err)
			}
			cfg := c.Source()
			var err error
			proxy, err = clientv3.New(clientv3.Config{Endpoints: cfg.Endpoints, Username: cfg.Username, Password: cfg.Password, Logger: zap.NewNop()})
			if err != nil {
				t.Errorf("the proxy's user: %v", err)
				return
			}
			if err := readRegistry(t, proxy, stepTimeout); err != nil {
				t.Errorf("the proxy's user reads: %v", err)
			}
			if _, err := proxy.Put(t.Context(), registry.Prefix+"a", ""); !errors.Is(err, rpctypes.ErrPermissionDenied) {
				t.Errorf("the proxy's user writes: %v", err)
			}
			r, err := proxy.Auth.Authenticate(t.Context(), cfg.Username, cfg.Password)
			if err != nil {
				t.Errorf("a token: %v", err)
				return
			}
			token = r.Token
		case 2:
			old, err := clientv3.New(clientv3.Config{Endpoints: c.Source().Endpoints, Token: token, Logger: zap.NewNop()})
			if err != nil {
				t.Errorf("a client with an old token: %v", err)
				return
			}
			defer old.Close()
			if err := readRegistry(t, old, stepTimeout); !errors.Is(err, rpctypes.ErrInvalidAuthToken) {
				t.Errorf("a token of %v: %v; want it to have expired", time.Since(began), err)
			}
		}
	}
	inject(t, c, "auth", seed(4))
	if line := h.log()[0]; !strings.HasSuffix(line, "restart: false") {
		t.Fatalf("%s; want a seed that draws no restart, which would forget the token", line)
	}
	if calls != 2 {
		t.Errorf("written to %d times; want twice", calls)
	}
	if proxy != nil {
		defer proxy.Close()
	}
	if err := readRegistry(t, noUser, stepTimeout); err != nil {
		t.Errorf("afterwards, without a user: %v", err)
	}
}
