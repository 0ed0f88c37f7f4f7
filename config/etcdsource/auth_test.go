package etcdsource

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
)

// withAuth turns authentication on and returns root's client.
func withAuth(t *testing.T, etcd *etcdtest.Process) *clientv3.Client {
	t.Helper()
	etcdtest.EnableAuth(t, etcd.Client(t), "root password", "proxy", "proxy password", registry.Prefix)
	return etcd.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "root password" })
}

func asProxy(cfg Config) Config {
	cfg.Username, cfg.Password = "proxy", "proxy password"
	return cfg
}

func TestAUserWhoMayReadThePrefixNeedsNothingElse(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	put(t, c, spec("a"), port(1))
	f := follow(t, asProxy(quick(etcd.URL())))
	f.await(t, "a:1 | ")
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
	f.resync(t)

	// The probe's reads are allowed as well.
	etcd.Pause()
	f.awaitStatus(t, "not connected", func(st config.Status) bool { return !st.Connected })
	etcd.Resume()
	f.awaitStatus(t, "connected", func(st config.Status) bool { return st.Connected })
	put(t, c, spec("a"), port(3))
	f.await(t, "a:3 | ")
}

func TestAnExpiredTokenIsRenewedWithoutAWord(t *testing.T) {
	etcd := etcdtest.StartProcess(t, "--auth-token-ttl=1")
	c := withAuth(t, etcd)
	put(t, c, spec("a"), port(1))
	f := follow(t, asProxy(quick(etcd.URL())))
	f.await(t, "a:1 | ")
	log := logSince(t)

	// Wait until a token of the same age is refused.
	cfg := asProxy(quick(etcd.URL()))
	cfg, err := cfg.Complete()
	if err != nil {
		t.Fatal(err)
	}
	witness, err := (&dialer{cfg, etcdconfig.NewNames(nil)}).dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer witness.close()
	for deadline := time.Now().Add(patience); ; time.Sleep(3 * time.Second) { // each use renews it
		_, err := newest(t.Context(), witness, nil)
		if errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			break
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the token does not expire: %v", err)
		}
	}
	f.resync(t)
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
	if st := f.source.Status(); st.Sessions != 1 {
		t.Errorf("%+v; want the first session still: an open watch needs no token", st)
	}
	if text := log(); strings.Contains(text, "token") {
		t.Errorf("it was said:\n%s", text)
	}

	etcd.Kill()
	etcd.Start(t)
	c = etcd.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "root password" })
	put(t, c, spec("a"), port(3))
	f.await(t, "a:3 | ")
}

func TestAWrongPasswordIsNamedAndTheRightOneHeals(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	put(t, c, spec("a"), port(1))
	if _, err := c.UserChangePassword(t.Context(), "proxy", "another"); err != nil {
		t.Fatal(err)
	}
	log := logSince(t)
	f := follow(t, asProxy(quick(etcd.URL())))
	st := f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" })
	if !strings.Contains(st.Reason, `log in as "proxy"`) || !strings.Contains(st.Reason, "authentication failed") {
		t.Errorf("the reason is %q", st.Reason)
	}
	if text := log(); strings.Contains(text, "proxy password") {
		t.Errorf("the log gives the password away:\n%s", text)
	}
	if _, err := c.UserChangePassword(t.Context(), "proxy", "proxy password"); err != nil {
		t.Fatal(err)
	}
	f.await(t, "a:1 | ")
}

func TestAMissingPermissionIsNamedAndAGrantHeals(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	etcdtest.EnableAuth(t, etcd.Client(t), "root password", "proxy", "proxy password", "/elsewhere/")
	c := etcd.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "root password" })
	put(t, c, spec("a"), port(1))
	f := follow(t, asProxy(quick(etcd.URL())))
	st := f.awaitStatus(t, "a reason", func(st config.Status) bool { return st.Reason != "" })
	if !strings.Contains(st.Reason, "permission denied") {
		t.Errorf("the reason is %q", st.Reason)
	}
	if _, err := c.RoleGrantPermission(t.Context(), "reader", registry.Prefix, clientv3.GetPrefixRangeEnd(registry.Prefix),
		clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	f.await(t, "a:1 | ")
}

func TestAuthenticationMayBeTurnedOnLater(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	with := follow(t, asProxy(quick(etcd.URL()))) // a user that this etcd does not ask for yet
	without := follow(t, quick(etcd.URL()))
	with.await(t, "a:1 | ")
	without.await(t, "a:1 | ")
	c := withAuth(t, etcd)
	put(t, c, spec("a"), port(2))
	with.resync(t)
	with.await(t, "a:2 | ")

	etcd.Kill()
	etcd.Start(t)
	c = etcd.Client(t, func(cfg *clientv3.Config) { cfg.Username, cfg.Password = "root", "root password" })
	put(t, c, spec("a"), port(3))
	with.await(t, "a:3 | ")
	without.awaitStatus(t, "a reason", func(st config.Status) bool { return strings.Contains(st.Reason, "user name is empty") })
	if got := without.text(); got != "a:2 | " {
		t.Errorf("shut out, it knows %q; want what it knew last", got)
	}
	if _, err := c.AuthDisable(t.Context()); err != nil {
		t.Fatal(err)
	}
	without.await(t, "a:3 | ")
}

// The password file is read again at each login.
func TestAReplacedPasswordIsUsedWithTheNextConnection(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	put(t, c, spec("a"), port(1))
	var password atomic.Pointer[string]
	say := func(s string) { password.Store(&s) }
	say("wrong")
	cfg := asProxy(quick(etcd.URL()))
	cfg.ReadPassword = func() (string, error) { return *password.Load(), nil }
	f := follow(t, cfg)
	f.awaitStatus(t, "refused", func(st config.Status) bool { return st.Cause == Refused.String() && !st.Ready })
	say("proxy password")
	f.await(t, "a:1 | ")
}
