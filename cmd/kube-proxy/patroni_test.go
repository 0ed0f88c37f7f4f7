package main

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// TestClientsFollowTheMembersOfACluster: the primary's and the replica's, without a record of endpoints; and while etcd is away a primary that says that
// it is none is given no client, and loses those that it has, until it says that it is.
func TestClientsFollowTheMembersOfACluster(t *testing.T) {
	for _, engine := range []string{"auto", "portable"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var status, asked atomic.Int32
			status.Store(http.StatusOK)
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/primary" {
					t.Errorf("asked for %s", r.URL.Path)
				}
				w.WriteHeader(int(status.Load()))
				asked.Add(1)
			}))
			t.Cleanup(api.Close)
			one, two := proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m1")), proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat("m2"))
			member := func(addr fmt.Stringer, role string) string {
				return fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","api_url":"%s/patroni","state":"running","role":%q,"xlog_location":100}`, addr, api.URL, role)
			}
			const cluster = "/service/pg/"
			for key, value := range map[string]string{"leader": "m1", "config": `{"ttl":1}`, "status": `{"optime":100}`, "members/m1": member(one.Addr, "master"), "members/m2": member(two.Addr, "replica")} {
				s.put(t, cluster+key, value)
			}
			writers, readers := proxytest.FreePort(t), proxytest.FreePort(t)
			for name, of := range map[string]string{"pg": `"primary","kube-proxy/patroni-stale":"ask"`, "pg-read": `"replica","kube-proxy/patroni-lag":"1MB"`} {
				port := writers
				if name == "pg-read" {
					port = readers
				}
				s.put(t, registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":%s}}`, name, port, of))
			}
			flags := []string{"-patroni=/service/", "-engine=" + engine, "-drain_timeout=0", "-state_dir=" + t.TempDir()}
			p := s.serve(t, flags...)
			who := func(port uint16) (string, error) {
				c, err := proxytest.TryTalkTo(t, proxytest.On(port))
				if err != nil {
					return "", err
				}
				defer c.Conn.Close()
				return c.Say("who are you?")
			}
			says := func(port uint16, want string) {
				t.Helper()
				proxytest.Eventually(t, func() bool {
					got, err := who(port)
					return err == nil && got == want
				}, "%s answers at port %d", want, port)
			}
			isReset := func(c *proxytest.Talk) {
				t.Helper()
				c.Conn.SetReadDeadline(time.Now().Add(time.Minute))
				if _, err := c.Conn.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the client of the one before is told %v; want a reset", err)
				}
			}
			says(writers, "m1")
			says(readers, "m2")
			c := proxytest.TalkTo(t, proxytest.On(writers))
			c.MustSay(t, "hello")
			s.put(t, cluster+"leader", "m2") // roles are as they were
			isReset(c)
			says(writers, "m2")
			s.put(t, cluster+"members/m1", member(one.Addr, "replica"))
			says(readers, "m1")

			c = proxytest.TalkTo(t, proxytest.On(writers))
			c.MustSay(t, "hello")
			s.etcd.Stop()
			proxytest.Eventually(t, func() bool { return asked.Load() >= 4 }, "four questions")
			says(writers, "m2")
			c.MustSay(t, "hello again") // nothing has cut it while the primary confirms
			status.Store(http.StatusServiceUnavailable)
			isReset(c)
			proxytest.Eventually(t, func() bool { _, err := who(writers); return err != nil }, "clients are refused")
			says(readers, "m1")
			status.Store(http.StatusOK)
			says(writers, "m2")

			p.Signal(t, syscall.SIGTERM)
			p.Exit(t)
			s.serve(t, flags...)
			says(readers, "m1")
			if got, err := who(writers); err == nil {
				t.Errorf("after a restart without etcd %s answers, whom nobody has asked", got)
			}
		})
	}
}

// TestClientsOfAPrimaryWaitForItsPromotion: the key names it before it takes writes.
func TestClientsOfAPrimaryWaitForItsPromotion(t *testing.T) {
	for _, engine := range []string{"auto", "portable"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			s := newSite(t)
			var role atomic.Value // of m2
			var asked atomic.Int32
			role.Store("replica")
			const cluster = "/service/pg/"
			for _, name := range []string{"m1", "m2"} {
				api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if name != "m2" || r.URL.Path != "/patroni" {
						t.Errorf("%s is asked for %s", name, r.URL.Path)
					}
					fmt.Fprintf(w, `{"state":"running","role":%q}`, role.Load())
					asked.Add(1)
				}))
				t.Cleanup(api.Close)
				s.put(t, cluster+"members/"+name, fmt.Sprintf(`{"conn_url":"postgres://%s/postgres","api_url":"%s/patroni","state":"running","role":"replica"}`,
					proxytest.ServeTCP(t, "127.0.0.1:0", proxytest.Chat(name)).Addr, api.URL))
			}
			s.put(t, cluster+"leader", "m1")
			port := proxytest.FreePort(t)
			s.put(t, registry.SpecsPrefix+"pg", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"pg","port":%d,"annotations":{
				"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary","kube-proxy/patroni-unpromoted":"ask","kube-proxy/wait":"30s"}}`, port))
			s.serve(t, "-patroni=/service/", "-engine="+engine, "-drain_timeout=0")
			proxytest.Eventually(t, func() bool { return proxytest.Listens(proxytest.On(port)) }, "the port of the primary opens")
			who := func() string {
				c, err := proxytest.TryTalkTo(t, proxytest.On(port))
				if err != nil {
					return err.Error()
				}
				defer c.Conn.Close()
				got, err := c.Say("who are you?")
				if err != nil {
					return err.Error()
				}
				return got
			}
			if got := who(); got != "m1" || asked.Load() > 0 {
				t.Errorf("%s answers after %d questions; want m1, which may have been the primary for long", got, asked.Load())
			}
			s.put(t, cluster+"leader", "m2")
			proxytest.Eventually(t, func() bool { return asked.Load() > 0 }, "the new primary is asked")
			answer := make(chan string, 1)
			go func() { answer <- who() }()
			before := asked.Load()
			proxytest.Eventually(t, func() bool { return asked.Load() >= before+5 }, "five questions more")
			select {
			case got := <-answer:
				t.Errorf("%q answers before it is promoted", got)
			default:
			}
			role.Store("master")
			if got := <-answer; got != "m2" {
				t.Errorf("%q answers; want m2", got)
			}
		})
	}
}
