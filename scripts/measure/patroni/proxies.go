//go:build linux

package patroni

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
)

// atProxy is a port of the proxies.
func atProxy(port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr(proxyIP), port).String()
}

// hosts are those that a writer tries, one after the other.
func (c *cluster) hosts(by path) (hosts []string) {
	if by.port != 0 {
		return []string{atProxy(by.port)}
	}
	for _, m := range c.members {
		hosts = append(hosts, fmt.Sprintf("%s:%d", m.ip, postgresPort))
	}
	return hosts
}

// startProxies writes the records of the services, and starts kube-proxy and, if it is there, HAProxy.
func (c *cluster) startProxies(ctx context.Context, binary string, withHAProxy bool) error {
	var addrs, names []string
	for _, m := range c.members {
		addrs, names = append(addrs, fmt.Sprintf(`"%s:%d"`, m.ip, postgresPort)), append(names, m.ip+"="+m.name)
	}
	var ops []clientv3.Op
	for _, s := range []struct {
		name        string
		port        uint16
		annotations string
	}{
		{"pg", byKey.port, fmt.Sprintf(`"kube-proxy/holder-key":%q,"kube-proxy/on-removal":"close"`, leaderKey)},
		{"pg-wait", byKeyWait.port, fmt.Sprintf(`"kube-proxy/holder-key":%q,"kube-proxy/on-removal":"close","kube-proxy/wait":"5s"`, leaderKey)},
		{"pg-checks", byChecks.port, fmt.Sprintf(`"kube-proxy/check-http":"/primary","kube-proxy/check-port":"%d","kube-proxy/check-status":"200","kube-proxy/check-interval":"500ms",
			"kube-proxy/check-fall":"1","kube-proxy/check-rise":"1","kube-proxy/on-failed-check":"close","kube-proxy/all-failed":"refuse"`, restPort)},
	} {
		ops = append(ops,
			clientv3.OpPut(registry.SpecsPrefix+s.name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"annotations":{%s}}`, s.name, s.port, s.annotations)),
			clientv3.OpPut(registry.EndpointsPrefix+s.name, fmt.Sprintf(`{"kind":"Endpoints","apiVersion":"v1beta1","id":%q,"endpoints":[%s],"annotations":{"kube-proxy/names":%q}}`,
				s.name, strings.Join(addrs, ","), strings.Join(names, ","))))
	}
	for _, s := range []struct {
		by   path
		more string
	}{{byMembers, ""}, {byAsking, `,"kube-proxy/patroni-unpromoted":"ask"`}} {
		ops = append(ops, clientv3.OpPut(registry.SpecsPrefix+"pg-"+s.by.name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"pg-%s","port":%d,
			"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"primary","kube-proxy/wait":"5s"%s}}`, s.by.name, s.by.port, s.more)))
	}
	ops = append(ops, clientv3.OpPut(registry.SpecsPrefix+"pg-replicas", fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":"pg-replicas","port":%d,
		"annotations":{"kube-proxy/patroni":"pg","kube-proxy/patroni-role":"replica","kube-proxy/patroni-lag":"%dkB",
		"kube-proxy/check-http":"/replica","kube-proxy/check-port":"%d","kube-proxy/check-status":"200","kube-proxy/check-interval":"500ms","kube-proxy/check-fall":"1","kube-proxy/check-rise":"1"}}`,
		byReplicas.port, lagLimit>>10, restPort)))
	if err := measure.Store(ctx, c.etcd, len(ops), ops...); err != nil {
		return err
	}
	open := func(p *process.Process, ports ...uint16) error {
		return p.Await(time.Minute, func() bool {
			return !slices.ContainsFunc(ports, func(port uint16) bool {
				conn, err := net.Dial("tcp", atProxy(port))
				if err == nil {
					conn.Close()
				}
				return err != nil
			})
		})
	}
	p, err := c.Start("kube-proxy", binary, "-logtostderr", "-v=1", "-etcd_servers="+c.etcdURL, "-holder_keys=/service/", "-patroni=/service/", "-bind_address="+proxyIP,
		"-metrics_bind_address="+proxyIP+":10249", "-healthz_bind_address="+proxyIP+":10256")
	if err != nil {
		return err
	}
	if err := open(p, byMembers.port, byAsking.port, byKey.port, byKeyWait.port, byChecks.port, byReplicas.port); err != nil || !withHAProxy {
		return err
	}
	file := filepath.Join(c.Dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(c.haproxyConfiguration()), 0o600); err != nil {
		return err
	}
	if p, err = c.Start("haproxy", "haproxy", "-db", "-f", file); err != nil {
		return err
	}
	return open(p, haproxy.port, fast.port, haReplicas.port)
}

// haproxyConfiguration is that of Patroni's repository (haproxy.cfg), and once more with faster checks.
func (c *cluster) haproxyConfiguration() string {
	var text strings.Builder
	text.WriteString(`global
  maxconn 100
defaults
  mode tcp
  retries 2
  timeout client 30m
  timeout connect 4s
  timeout server 30m
  timeout check 5s
`)
	for _, l := range []struct {
		port         uint16
		role, checks string
	}{{haproxy.port, "primary", "inter 3s fall 3 rise 2"}, {fast.port, "primary", "inter 500ms fall 1 rise 1"}, {haReplicas.port, "replica", "inter 3s fall 3 rise 2"}} {
		fmt.Fprintf(&text, "listen at%d\n  bind %s:%[1]d\n  option httpchk OPTIONS /%[3]s\n  http-check expect status 200\n  default-server %[4]s on-marked-down shutdown-sessions\n", l.port, proxyIP, l.role, l.checks)
		for _, m := range c.members {
			fmt.Fprintf(&text, "  server %s %s:%d maxconn 100 check port %d\n", m.name, m.ip, postgresPort, restPort)
		}
	}
	return text.String()
}
