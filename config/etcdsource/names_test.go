package etcdsource

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"kubeproxy/config"
	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
)

// slowNames answers 127.0.0.1 to look-ups that came before it was told to hold them, and to others once released.
type slowNames struct {
	*etcdconfig.Names
	asked   atomic.Int64
	holding atomic.Bool
	release chan struct{}
}

func newSlowNames() *slowNames {
	s := &slowNames{release: make(chan struct{})}
	s.Names = etcdconfig.NewNames(func(ctx context.Context, _ string) ([]string, error) {
		s.asked.Add(1)
		if s.holding.Load() {
			select {
			case <-s.release:
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return []string{"127.0.0.1"}, nil
	})
	return s
}

// followNamed follows an etcd whose URL has a name.
func followNamed(t *testing.T, port string, n *slowNames) *follower {
	t.Helper()
	cfg := quick("http://etcd.invalid:" + port)
	cfg.DialTimeout = 50 * time.Millisecond
	source, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	source.cfg.names = n.Names
	return followSource(t, source)
}

func portOf(etcd *etcdtest.Process) string {
	_, port, _ := strings.Cut(etcd.Addr(), ":")
	return port
}

func TestALookUpMayTakeLongerThanAConnectionAttempt(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	put(t, etcd.Client(t), spec("a"), port(1))
	n := newSlowNames()
	n.holding.Store(true)
	f := followNamed(t, portOf(etcd), n)
	st := f.awaitStatus(t, "attempts in vain", func(st config.Status) bool { return st.Attempts >= 3 })
	if !strings.Contains(st.Reason, "look up etcd.invalid: no answer yet") {
		t.Errorf("the reason is %q", st.Reason)
	}
	if asked := n.asked.Load(); asked != 1 {
		t.Errorf("%d look-ups; want one for all attempts", asked)
	}
	close(n.release)
	f.await(t, "a:1 | ")
}

func TestTheLastGoodAnswerServesWhileANameIsLookedUpAgain(t *testing.T) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	put(t, c, spec("a"), port(1))
	n := newSlowNames()
	f := followNamed(t, portOf(etcd), n)
	f.await(t, "a:1 | ")
	n.holding.Store(true) // until the test ends
	etcd.Kill()
	etcd.Start(t)
	put(t, c, spec("a"), port(2))
	f.await(t, "a:2 | ")
}

func TestLookUpsEndWithTheSource(t *testing.T) {
	n := newSlowNames()
	n.holding.Store(true)
	f := followNamed(t, "1", n)
	for n.asked.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	f.stop() // it would wait for the look-up otherwise
}
