package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/cmd/internal/programtest"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// These tests do to registrars, instances and etcd what happens to them in production, and hold three promises of docs/register.md: no
// client fails while an instance answers, an instance that is gone is withdrawn when its lease ends, and a clean stop loses no connection.
//
// Leases last 5 s, which is as short as the flag allows. Etcd's own clock ends them, so the tests take that long and wait for the events.

// An ordeal is an etcd in its own process, a proxy, the service "web" and clients who connect to it all the time.
type ordeal struct {
	etcd  *etcdtest.Process
	kv    *clientv3.Client
	port  uint16
	proxy *programtest.Program
	ask   func() error // a client does
}

const shortLease = "-ttl=5s"

func newOrdeal(t *testing.T) *ordeal {
	t.Helper()
	o := &ordeal{etcd: etcdtest.StartProcess(t), port: proxytest.FreePort(t)}
	o.kv = o.etcd.Client(t)
	o.ask = func() error { _, err := proxytest.AskTCP(proxytest.On(o.port)); return err }
	spec := fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":"web","namespace":"default"},"spec":{"ports":[{"port":%d}]}}`, o.port)
	if _, err := o.kv.Put(t.Context(), registry.SpecsPrefix+"default/web", spec); err != nil {
		t.Fatal(err)
	}
	o.proxy = start(t, nil, "-etcd_servers="+o.etcd.URL(), "-bind_address=127.0.0.1", "-dial_timeout=15s", "-dial_total_timeout=15s")
	return o
}

// register registers an instance by way of etcd's address, which may be that of a link.
func (o *ordeal) register(t *testing.T, etcd, host string, at *proxytest.TCPServer, args ...string) *programtest.Program {
	t.Helper()
	return programtest.Start(t, nil, "kube-proxy", append([]string{"register", "-etcd_servers=http://" + etcd, "-service=web", "-host=" + host,
		fmt.Sprintf("-port=%d", at.Addr.IP.Port()), "-address=127.0.0.1", "-check_interval=200ms", shortLease}, args...)...)
}

// records returns the records of instances by their host, as etcd has them.
func (o *ordeal) records(t *testing.T) map[string]string {
	t.Helper()
	all := make(map[string]string)
	proxytest.Eventually(t, func() bool { // it may be starting
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		resp, err := o.kv.Get(ctx, registry.EndpointSlicesPrefix, clientv3.WithPrefix())
		if err != nil {
			return false
		}
		clear(all)
		for _, kv := range resp.Kvs {
			_, host, _ := strings.Cut(string(kv.Value), `"nodeName":"`)
			host, _, _ = strings.Cut(host, `"`)
			all[host] = string(kv.Value)
		}
		return true
	}, "etcd answers")
	return all
}

// registered waits until these hosts, and no others, have records that say ready.
func (o *ordeal) registered(t *testing.T, hosts ...string) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		all := o.records(t)
		for _, host := range hosts {
			if !strings.Contains(all[host], `"ready":true`) {
				return false
			}
		}
		return len(all) == len(hosts)
	}, "the instances on %q are registered, and no others", hosts)
}

// answered waits until an instance answers a client. Others may, too.
func (o *ordeal) answered(t *testing.T, by string) {
	t.Helper()
	proxytest.Eventually(t, func() bool {
		got, err := proxytest.AskTCP(proxytest.On(o.port))
		return err == nil && got == by
	}, "a client is answered by %s", by)
}

// A crowd is clients who connect one after the other.
type crowd struct {
	o        *ordeal
	stop     chan struct{}
	over     chan struct{}
	served   atomic.Int64
	failures []string // once over is closed
}

func (o *ordeal) crowd(t *testing.T) *crowd {
	c := &crowd{o: o, stop: make(chan struct{}), over: make(chan struct{})}
	go func() {
		defer close(c.over)
		for {
			select {
			case <-c.stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
			if err := o.ask(); err != nil {
				c.failures = append(c.failures, fmt.Sprintf("client %d: %v", c.served.Load(), err))
			}
			c.served.Add(1)
		}
	}()
	t.Cleanup(func() { c.end(t) })
	return c
}

// end waits for the last client. None has failed.
func (c *crowd) end(t *testing.T) {
	t.Helper()
	select {
	case <-c.over:
		return
	default:
	}
	close(c.stop)
	<-c.over
	t.Logf("%d clients", c.served.Load())
	for _, f := range c.failures[:min(len(c.failures), 10)] {
		t.Error(f)
	}
	if len(c.failures) > 0 {
		t.Errorf("%d of %d clients failed; want none", len(c.failures), c.served.Load())
	}
}

// passes waits until so many more clients are done.
func (c *crowd) passes(t *testing.T, n int64) {
	t.Helper()
	until := c.served.Load() + n
	proxytest.Eventually(t, func() bool { return c.served.Load() >= until }, "%d clients are done", until)
}

// instance is a backend that answers with its name.
func instance(t *testing.T, name string) *proxytest.TCPServer {
	return proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Identify(name))
}

func TestNoClientFailsWhileRegistrarsAreCutOffForLongerThanTheirLeases(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	link := etcdtest.NewLink(t, o.etcd.Addr())
	o.register(t, link.Addr(), "a", instance(t, "one"))
	o.register(t, link.Addr(), "b", instance(t, "two"))
	o.registered(t, "a", "b")
	o.answered(t, "one")
	o.answered(t, "two")
	c := o.crowd(t)
	link.Down()
	o.registered(t) // the leases have ended
	o.proxy.Stderr.Wait(t, "the leases of all its instances have ended")
	c.passes(t, 50)
	link.Up()
	o.registered(t, "a", "b")
	c.passes(t, 50)
	c.end(t)
}

func TestNoClientFailsWhenEtcdIsPausedForLongerThanTheLeases(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	a := o.register(t, o.etcd.Addr(), "a", instance(t, "one"))
	o.registered(t, "a")
	o.answered(t, "one")
	c := o.crowd(t)
	o.etcd.Pause()
	a.Stderr.Wait(t, "trying again")
	time.Sleep(6 * time.Second) // nothing tells of the time that passes for a paused etcd; its leases are over when it goes on
	o.etcd.Resume()
	o.registered(t, "a")
	c.passes(t, 50)
	c.end(t)
}

// The backup knows an instance that is long gone, and none of those of today.
func TestNoClientFailsWhenEtcdIsRestoredFromABackupOfOtherInstances(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	gone := instance(t, "gone")
	old := o.register(t, o.etcd.Addr(), "old", gone)
	o.registered(t, "old")
	o.etcd.Stop()
	backup := t.TempDir()
	if err := os.CopyFS(backup, os.DirFS(o.etcd.DataDir())); err != nil {
		t.Fatal(err)
	}
	o.etcd.Start(t)
	o.registered(t, "old")
	old.Signal(t, syscall.SIGTERM)
	old.Exit(t)
	gone.Close()
	o.register(t, o.etcd.Addr(), "a", instance(t, "one"))
	o.register(t, o.etcd.Addr(), "b", instance(t, "two"))
	o.registered(t, "a", "b")
	o.answered(t, "one")
	o.answered(t, "two")

	c := o.crowd(t)
	o.etcd.Kill()
	o.etcd.SwapDataDir(backup)
	o.etcd.Start(t)
	o.proxy.Stderr.Wait(t, "went back from revision")
	o.registered(t, "a", "b") // and the lease of the old one has ended
	c.passes(t, 50)
	c.end(t)
}

func TestAnInstanceThatDiedWhileItsRegistrarWasPausedIsNotOfferedAgain(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	one := instance(t, "one")
	a := o.register(t, o.etcd.Addr(), "a", one)
	o.register(t, o.etcd.Addr(), "b", instance(t, "two"))
	o.registered(t, "a", "b")
	o.answered(t, "one")
	c := o.crowd(t)
	a.Signal(t, syscall.SIGSTOP)
	o.registered(t, "b") // the lease of a has ended
	c.end(t)             // a client that is being served by an instance that dies fails
	resp, err := o.kv.Get(t.Context(), "revision")
	if err != nil {
		t.Fatal(err)
	}
	one.Close()
	c = o.crowd(t)
	a.Signal(t, syscall.SIGCONT)
	a.Stderr.Wait(t, "the lease has expired")
	a.Stderr.Wait(t, "the check fails")
	for _, host := range offered(t, o.kv, resp.Header.Revision+1) {
		if host == "a" {
			t.Error("an instance that does not answer was offered again")
		}
	}
	c.passes(t, 50)
	c.end(t)
}

// offered returns the hosts of the instances that were written as ready since a revision, up to now.
func offered(t *testing.T, kv *clientv3.Client, since int64) (hosts []string) {
	t.Helper()
	end, err := kv.Put(t.Context(), registry.EndpointSlicesPrefix+"end", "")
	if err != nil {
		t.Fatal(err)
	}
	for change := range kv.Watch(t.Context(), registry.EndpointSlicesPrefix, clientv3.WithPrefix(), clientv3.WithRev(since)) {
		for _, ev := range change.Events {
			if ev.Kv.ModRevision == end.Header.Revision {
				return hosts
			}
			_, host, _ := strings.Cut(string(ev.Kv.Value), `"nodeName":"`)
			host, _, _ = strings.Cut(host, `"`)
			if strings.Contains(string(ev.Kv.Value), `"ready":true`) {
				hosts = append(hosts, host)
			}
		}
	}
	t.Fatal("the watch has ended")
	return nil
}

func TestAPausedRegistrarIsBackWhenItGoesOn(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	a := o.register(t, o.etcd.Addr(), "a", instance(t, "one"))
	o.registered(t, "a")
	o.answered(t, "one")
	c := o.crowd(t)
	a.Signal(t, syscall.SIGSTOP)
	o.registered(t)
	c.passes(t, 50)
	a.Signal(t, syscall.SIGCONT)
	o.registered(t, "a")
	c.passes(t, 50)
	c.end(t)
}

// TestTheInstanceOfAKilledRegistrarIsNotOfferedForEver has an instance that still answers when no registrar keeps its lease. The log says how
// long it got clients.
func TestTheInstanceOfAKilledRegistrarIsNotOfferedForEver(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	a := o.register(t, o.etcd.Addr(), "a", instance(t, "one"))
	o.register(t, o.etcd.Addr(), "b", instance(t, "two"))
	o.registered(t, "a", "b")
	o.answered(t, "one")
	killed := time.Now()
	a.Signal(t, syscall.SIGKILL)
	a.Exit(t)
	last, others := killed, 0
	proxytest.Eventually(t, func() bool {
		got, err := proxytest.AskTCP(proxytest.On(o.port))
		switch {
		case err != nil:
			t.Errorf("a client failed: %v", err)
		case got == "one":
			last, others = time.Now(), 0
		default:
			others++
		}
		return others == 20 // of two that are offered, every second client gets "one"
	}, "the other instance gets all clients")
	t.Logf("the instance got its last client %v after its registrar was killed", last.Sub(killed).Round(time.Millisecond))
}

func TestTheFirstOfTwoRegistrarsTakesOverWhenTheSecondDies(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	one := instance(t, "one")
	first := o.register(t, o.etcd.Addr(), "a", one)
	o.registered(t, "a")
	o.answered(t, "one")
	c := o.crowd(t)
	second := o.register(t, o.etcd.Addr(), "a", one)
	first.Stderr.Wait(t, "another registrar has published this instance")
	before := o.records(t)["a"]
	second.Signal(t, syscall.SIGKILL)
	second.Exit(t)
	proxytest.Eventually(t, func() bool { now := o.records(t)["a"]; return now != "" && now != before }, "the first one registers the instance again")
	c.passes(t, 50)
	c.end(t)
}

func TestAnInstanceThatFailsItsCheckGetsNoMoreClients(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	one := instance(t, "one")
	a := o.register(t, o.etcd.Addr(), "a", one)
	o.register(t, o.etcd.Addr(), "b", instance(t, "two"))
	o.registered(t, "a", "b")
	o.answered(t, "one")
	one.Close() // no client is being served
	c := o.crowd(t)
	a.Stderr.Wait(t, "the check fails")
	proxytest.Eventually(t, func() bool { return strings.Contains(o.records(t)["a"], `"ready":false,"serving":false`) }, "the record says that nobody is to use it")
	c.passes(t, 50)
	c.end(t)
}

// The instance is told to stop when clients have had time to go elsewhere. What is open goes on.
func TestACleanStopLosesNoConnection(t *testing.T) {
	t.Parallel()
	o := newOrdeal(t)
	one := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("one"))
	a := o.register(t, o.etcd.Addr(), "a", one, "-drain=3s", "--", "sh", "-c", `trap "echo told; exit" TERM; while :; do sleep 0.05; done`)
	o.registered(t, "a")
	o.ask = func() error {
		talk, err := proxytest.TryTalkTo(t, proxytest.On(o.port))
		if err == nil {
			_, err = talk.Say("hello")
			talk.Conn.Close()
		}
		return err
	}
	proxytest.Eventually(t, func() bool { return o.ask() == nil }, "a client is answered")
	open := proxytest.TalkTo(t, proxytest.On(o.port))
	open.MustSay(t, "hello")
	two := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("two"))
	o.register(t, o.etcd.Addr(), "b", two)
	o.registered(t, "a", "b")

	c := o.crowd(t)
	proxytest.Eventually(t, func() bool { return two.Accepted() > 0 }, "a client is answered by the other instance")
	a.Signal(t, syscall.SIGTERM)
	a.Stdout.Wait(t, "told")
	if code := a.Exit(t).ExitCode(); code != exitDone {
		t.Errorf("exit status %d, want the command's", code)
	}
	o.registered(t, "b")
	open.MustSay(t, "still there?")
	c.passes(t, 50)
	c.end(t)
}
