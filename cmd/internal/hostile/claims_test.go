//go:build linux

package hostile

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// TestAServiceWithEveryLocalPort leaves the node ports for connections of its own.
func TestAServiceWithEveryLocalPort(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const first, n, outgoing = 32_768, 28_232, 2000
	s := attacked(t)
	write := func(name, clusterIP string) func() {
		return func() {
			s.manyPorts(t, name, first, n, echoes, clusterIP)
			time.Sleep(settled)
		}
	}
	s.innocent = func(t *testing.T) func() {
		s.writes(true, write("modest", headless))
		return func() { // or its memory would count for the attack
			s.remove(t, "modest")
		}
	}
	r := s.withstands(t, fmt.Sprintf("a service with %d ports, the whole range of local ports", n), portsMemory, func(t *testing.T, atProxy bool) func() {
		return s.writes(atProxy, write("greedy", claiming))
	})
	var conns []net.Conn
	for i := range outgoing {
		conn, err := net.DialTimeout("tcp4", holds, patience)
		if err != nil {
			t.Errorf("outgoing connection %d: %v", i, err)
			break
		}
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		conn.Close()
	}
	r.Refused = fmt.Sprintf("%.0f ports", s.sum(t, "kubeproxy_ports_refused")+s.sum(t, "kubeproxy_ports_not_open"))
	r.judge(t)
}

// TestPortsOfProgramsThatRestart: a service lists etcd's port and that of another program. Both get theirs back three
// seconds after they stopped.
func TestPortsOfProgramsThatRestart(t *testing.T) {
	if !ownNetwork(t) {
		return
	}
	const port = "7308"
	s := attacked(t)
	program, err := net.Listen("tcp4", "0.0.0.0:"+port)
	if err != nil {
		t.Fatal(err)
	}
	_, etcd, _ := strings.Cut(s.etcd.Addr(), ":")
	s.service(t, "thief-of-etcd", etcd, "TCP", echoes)
	s.service(t, "thief", port, "TCP", echoes)
	s.works(t)
	program.Close()
	s.etcd.Kill()
	time.Sleep(3 * time.Second)
	if program, err = net.Listen("tcp4", "0.0.0.0:"+port); err != nil {
		t.Errorf("the program does not get its port back: %v", err)
	} else {
		program.Close()
	}
	s.etcd.Start(t)
	s.works(t)
	r := s.row(t, "a service that lists the ports of etcd and of another program, which restart", base)
	r.Refused = fmt.Sprintf("%.0f ports", s.sum(t, "kubeproxy_ports_refused")+s.sum(t, "kubeproxy_ports_not_open"))
	r.judge(t)
}

// TestClaimsInVainDelayNobody: services ask for ports that they cannot have, tens of thousands in all, and go again.
func TestClaimsInVainDelayNobody(t *testing.T) {
	const each = 1000
	claims := number(50_000, 20_000)
	for _, c := range []struct {
		name  string
		write func(t *testing.T, s *site, clusterIP string)
		times int // in a round, in full: the 99th percentile of a tenth of a second is chance
		flags []string
	}{
		{"ports that -allowed_ports refuses", func(t *testing.T, s *site, clusterIP string) {
			for i := range claims / each {
				s.manyPorts(t, fmt.Sprint("vain-", i), 8000+i*each, each, echoes, clusterIP)
			}
		}, number(8, 1), []string{"-allowed_ports=7000-7999"}},
		{"services that all claim one port", func(t *testing.T, s *site, portalIP string) {
			s.manyServices(t, "vain-", claims, bystanderPort, portalIP)
		}, 1, nil},
	} {
		inOwnNetwork(t, c.name, func(t *testing.T) {
			s := attacked(t, c.flags...)
			var slowest time.Duration
			name := fmt.Sprintf("%d %s", claims, c.name)
			load := func(atProxy bool, asked string) func() {
				return s.writes(atProxy, func() {
					for range c.times {
						c.write(t, s, asked)
						s.remove(t, "vain-", clientv3.WithPrefix())
					}
				})
			}
			s.innocent = func(t *testing.T) func() {
				over := load(true, headless)
				s.changeInForce(t)
				return over
			}
			r := s.withstands(t, name, portsMemory, func(t *testing.T, atProxy bool) func() {
				over := load(atProxy, claiming)
				if took := s.changeInForce(t); atProxy {
					slowest = max(slowest, took)
				}
				return over
			})
			if *full && slowest > changeBound {
				t.Errorf("a change of another service was in force after %v; want %v at most", slowest, changeBound)
			}
			r.Scenario += fmt.Sprintf("; other changes in force within %v", slowest.Round(time.Millisecond))
			r.Refused = "all of them"
			r.judge(t)
		})
	}
}
