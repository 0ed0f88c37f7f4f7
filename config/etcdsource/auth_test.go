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
	return asRoot(t, etcd)
}

// asRoot returns a new client of root.
func asRoot(t *testing.T, etcd *etcdtest.Process) *clientv3.Client {
	t.Helper()
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
	tokensExpire(t, etcd)
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
	put(t, asRoot(t, etcd), spec("a"), port(3))
	f.await(t, "a:3 | ")
}

// The stream of the session that stands has the old token for ever, and a watch of a key is a new request.
func TestAKeyThatIsNamedAfterTheTokenExpiredIsFollowedWithoutAWord(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	if _, err := c.RoleGrantPermission(t.Context(), "reader", leader, "", clientv3.PermissionType(clientv3.PermRead)); err != nil {
		t.Fatal(err)
	}
	put(t, c, spec("pg"), port(1), ends("pg"), called("m1", "m2"), leader, "m2")
	cfg := asProxy(mayFollow(etcd.URL()))
	cfg.DialTimeout, cfg.RequestTimeout = patience, patience // to check a password takes etcd its time
	cfg.ProbePeriod = patience                               // a silence of a busy machine has lines, and the question whether etcd lives logs in
	f := follow(t, cfg)
	f.await(t, "pg:1 | pg=10.0.0.1:1,10.0.0.2:1")
	before := f.awaitStatus(t, "connected", func(st config.Status) bool { return st.Connected })
	log := logSince(t)
	time.Sleep(maxBackoff) // for less, a token that is refused is a fresh one, and news
	endTokens(t, c)
	put(t, c, spec("pg"), electing(leader))
	f.await(t, "pg:1 | pg=10.0.0.2:1")
	st := f.source.Status()
	if st.Sessions != 2 || ended(st)[Refused] != 0 || ended(st)[Cancelled] != 1 {
		t.Errorf("%d sessions, ended by %v; want a second one, and no refusal", st.Sessions, st.Ends)
	}
	if !st.Connected || !st.Since.Equal(before.Since) {
		t.Errorf("connected %v since %v; want since %v", st.Connected, st.Since, before.Since)
	}
	if text := log(); strings.Contains(text, "etcd at ") || strings.Contains(text, "token") {
		t.Errorf("it was said:\n%s", text)
	}
}

// A process that was stopped for longer than a token lives has to ask etcd for its revision, before it takes any more.
func TestAStoppedWatchWhoseTokenHasExpiredIsGivenUpWhenItIsFarBehind(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := withAuth(t, etcd)
	put(t, c, spec("a"), port(1))
	link := etcdtest.NewLink(t, etcd.Addr())
	cfg := asProxy(quick(link.Addr()))
	cfg.DialTimeout, cfg.RequestTimeout = patience, patience
	cfg.ProbePeriod = time.Second // the question has two: quick's are short for a busy machine
	cfg.BehindRevisions, cfg.BehindBytes = 50, 1000
	f := follow(t, cfg)
	f.await(t, "a:1 | ")
	release := link.Hold(t) // as a process that is stopped takes nothing, and asks nothing
	start := time.Now()
	endTokens(t, c)
	time.Sleep(time.Until(start.Add(4 * cfg.ProbePeriod))) // a silence
	for i := range 300 {
		put(t, c, spec("a"), port(2+i))
	}
	release()
	f.await(t, "a:301 | ")
	if st := f.source.Status(); st.Sessions != 2 || ended(st)[Behind]+ended(st)[Stale] != 1 { // the latter if a login takes very long
		t.Errorf("%d sessions, ended by %v; want the first one found to be far behind", st.Sessions, st.Ends)
	}
}

func TestTheRevisionIsAskedForWithANewTokenWhereTheOldOneIsRefused(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	cfg := asProxy(quick(etcd.URL()))
	cfg.DialTimeout = patience // to check a password takes etcd its time
	asks := func(who string, c *client, want bool) {
		t.Helper()
		if got := c.reached(t.Context(), patience); (got > 0) != want {
			t.Errorf("%s: revision %d; want one: %v", who, got, want)
		}
	}
	early, nobody := dialled(t, cfg), dialled(t, quick(etcd.URL()))
	asks("a user without authentication", early, true)
	c := withAuth(t, etcd)
	asks("a user who logged in before authentication was turned on", early, true)
	asks("no user", nobody, false)

	late := dialled(t, cfg)
	if _, err := c.UserChangePassword(t.Context(), "proxy", "another"); err != nil { // see endTokens
		t.Fatal(err)
	}
	asks("a user whose password is wrong", late, false)
	endTokens(t, c)
	asks("a user whose token was refused, and whose password is right", late, true)
}

// dialled is a client of the source's.
func dialled(t *testing.T, cfg Config) *client {
	t.Helper()
	cfg, err := cfg.Complete()
	if err != nil {
		t.Fatal(err)
	}
	c, err := (&dialer{cfg, etcdconfig.NewNames(nil)}).dial(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.close)
	return c
}

// endTokens ends all tokens of the proxy, whose password stays as it is: etcd does so whenever one is set.
func endTokens(t *testing.T, root *clientv3.Client) {
	t.Helper()
	if _, err := root.UserChangePassword(t.Context(), "proxy", "proxy password"); err != nil {
		t.Fatal(err)
	}
}

// tokensExpire waits until etcd refuses a token that is newer than any that was in use before.
func tokensExpire(t *testing.T, etcd *etcdtest.Process) {
	t.Helper()
	cfg := asProxy(quick(etcd.URL()))
	cfg.DialTimeout, cfg.RequestTimeout = patience, patience // to check a password takes etcd its time
	witness := dialled(t, cfg)
	for deadline := time.Now().Add(patience); ; time.Sleep(3 * time.Second) { // each use renews it
		_, err := newest(t.Context(), witness, nil)
		if errors.Is(err, rpctypes.ErrInvalidAuthToken) {
			return
		}
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("the token does not expire: %v", err)
		}
	}
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
	f.awaitStatus(t, "a wrong password named", func(st config.Status) bool { // a login that takes long has another reason
		return strings.Contains(st.Reason, `log in as "proxy"`) && strings.Contains(st.Reason, "authentication failed")
	})
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
	f.awaitStatus(t, "the missing permission named", func(st config.Status) bool { return strings.Contains(st.Reason, "permission denied") })
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
