//go:build linux

package hostile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kubeproxy/proxy/proxytest"
)

// withNameservers is a script that starts kube-proxy with these nameservers and no others.
func (s *site) withNameservers(t *testing.T, addresses ...string) (script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.dir, "resolv.conf"), []byte("nameserver "+strings.Join(addresses, "\nnameserver ")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cast(t, "nameservers")
	return `mount --bind "$DIR/resolv.conf" /etc/resolv.conf; exec "$@"`
}

// TestTheFirstNameserverIsDead, the second one answers: the node becomes ready although etcd is given by name, and
// each client of an endpoint that is a name reaches it.
func TestTheFirstNameserverIsDead(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	s := foundSite(t).forAttack()
	s.service(t, "named", "7303", "TCP", "web.hostile.test:7101")
	_, port, _ := strings.Cut(s.etcd.Addr(), ":")
	s.etcdURL = "http://etcd.hostile.test:" + port
	s.start(t, s.withNameservers(t, silentNameserver, nameserver))
	s.becomesReady(t)
	for i := range 4 {
		if err := roundTrip(at("7303"), proxytest.Patience); err != nil {
			t.Errorf("client %d of an endpoint with a name: %v", i, err)
		}
	}
	s.works(t)
	r := s.row(t, "a first nameserver that does not answer, for endpoints and for etcd", base)
	r.Refused = told(s.ended(t, "kubeproxy_connections_ended_total", "named"))
	r.judge(t)
}

// TestNamesThatNobodyResolves: thousands of clients of thousands of names, and nameservers that do not answer.
func TestNamesThatNobodyResolves(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const port, answeredPort = "7304", "7310"
	names, clients := number(5000, 500), number(3000, 300)
	s := foundSite(t).forAttack()
	s.service(t, "named", port, "TCP", list("web-%d-%d.hostile.test:80", names)...)
	_, holdsPort, _ := strings.Cut(holds, ":")
	s.service(t, "answered", answeredPort, "TCP", list(answered+"%d-%d.hostile.test:"+holdsPort, names)...)
	s.start(t, s.withNameservers(t, silentNameserver))
	s.becomesReady(t)
	gather := func(t *testing.T, aim string) func() {
		all := crowd(t, aim, "", clients, 1500)
		s.works(t)
		return func() {
			for _, p := range all {
				dismiss(t, p)
			}
			eventually(t, func() bool { return s.sum(t, "kubeproxy_connections_active") == 0 }, "the clients are gone")
		}
	}
	s.innocent = func(t *testing.T) func() { return gather(t, at(answeredPort)) }
	r := s.withstands(t, fmt.Sprintf("%d clients of %d names that are not resolved", clients, names), base+uint64(clients)*connectionBytes, func(t *testing.T, atProxy bool) func() {
		if atProxy {
			return gather(t, at(port))
		}
		return gather(t, sinkAddr)
	})
	// A client has its own descriptor and at most one more; look-ups share a few.
	if got, most := s.mostDescriptors.Load(), int64(2*clients+500); got > most {
		t.Errorf("%d descriptors were open; want %d at most", got, most)
	}
	r.Refused = told(s.ended(t, "kubeproxy_connections_ended_total", "named"))
	r.judge(t)
}
