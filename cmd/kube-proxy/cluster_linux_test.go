package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"kubeproxy/proxy/proxytest"
	"kubeproxy/registry"
)

// A cluster is what clients of services see: the node, a pod on it, and a host beside it. The pod and the host have an endpoint each.
type cluster struct {
	node, pod, host place
	dir             string
}

// A place is where clients are.
type place struct {
	name   string
	within func(task func() error) error
}

// Where services of the cluster are, beside the node. None of these addresses is on an interface.
const clusterRanges = "10.96.0.0/16,198.51.100.0/24,fd00:96::/108"

// TestServicesAnswerAsTheDocumentationOfKubernetesSays: what clients on the node, in a pod behind it and on another host get of services of each kind. The
// expected answers are those of https://kubernetes.io/docs/concepts/services-networking/service/ and .../reference/networking/virtual-ips/, but for
// what docs/addresses.md says.
func TestServicesAnswerAsTheDocumentationOfKubernetesSays(t *testing.T) {
	if !proxytest.InOwnNetwork(t) {
		return
	}
	c, node4, pod4 := newCluster(t)
	spec := func(name, spec string) {
		t.Helper()
		writeRecord(t, c.dir, registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":%q},"spec":%s}`, name, spec))
	}
	status := func(name, text, status string) {
		t.Helper()
		writeRecord(t, c.dir, registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":%q},"spec":%s,"status":{"loadBalancer":{"ingress":[%s]}}}`, name, text, status))
	}
	slice := func(service, family string, endpoints ...string) {
		t.Helper()
		writeRecord(t, c.dir, registry.EndpointSlicesPrefix+"default/"+service+"-"+strings.ToLower(family), fmt.Sprintf(`{"kind":"EndpointSlice","apiVersion":"discovery.k8s.io/v1",
			"metadata":{"name":"%s-%s","labels":{"kubernetes.io/service-name":%[1]q}},"addressType":%[3]q,"endpoints":[%[4]s],"ports":[{"name":"","protocol":"TCP","port":8080},{"name":"u","protocol":"UDP","port":8080}]}`,
			service, strings.ToLower(family), family, strings.Join(endpoints, ",")))
	}
	local, remote := `{"addresses":["10.77.2.2"],"nodeName":"node1"}`, `{"addresses":["10.77.1.2"],"nodeName":"node2"}`
	both := func(service string) { slice(service, "IPv4", local, remote) }

	spec("web", `{"type":"NodePort","clusterIP":"10.96.0.10","externalIPs":["198.51.100.7"],"ports":[{"port":80,"nodePort":30080}]}`)
	both("web")
	status("lb", `{"type":"LoadBalancer","clusterIP":"10.96.0.11","loadBalancerSourceRanges":["10.77.1.2/32"],"ports":[{"port":80,"nodePort":30081}]}`,
		`{"ip":"198.51.100.8"},{"ip":"198.51.100.9","ipMode":"Proxy"}`)
	both("lb")
	status("external-local", `{"type":"LoadBalancer","clusterIP":"10.96.0.12","externalTrafficPolicy":"Local","healthCheckNodePort":32012,"ports":[{"port":80,"nodePort":30082}]}`, `{"ip":"198.51.100.12"}`)
	both("external-local")
	spec("nowhere-local", `{"type":"NodePort","clusterIP":"10.96.0.13","externalTrafficPolicy":"Local","ports":[{"port":80,"nodePort":30083}]}`)
	slice("nowhere-local", "IPv4", remote)
	spec("internal-local", `{"clusterIP":"10.96.0.14","internalTrafficPolicy":"Local","ports":[{"port":80}]}`)
	both("internal-local")
	spec("sticky", `{"clusterIP":"10.96.0.15","sessionAffinity":"ClientIP","ports":[{"port":80}]}`)
	both("sticky")
	annotated := func(name, annotation, value, spec string) {
		t.Helper()
		writeRecord(t, c.dir, registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1","metadata":{"name":%q,"annotations":{%q:%q}},"spec":%s}`, name, annotation, value, spec))
	}
	annotated("dns", "kube-proxy/check-udp", "ping", `{"clusterIP":"10.96.0.16","ports":[{"name":"u","protocol":"UDP","port":53}]}`)
	both("dns")
	annotated("at-node", "kube-proxy/listen", "node", `{"ports":[{"port":5432}]}`)
	slice("at-node", "IPv4", local)
	spec("beside", `{"clusterIP":"10.96.0.21","ports":[{"port":5432}]}`)
	slice("beside", "IPv4", remote)
	spec("beside-sticky", `{"clusterIP":"10.96.0.22","sessionAffinity":"ClientIP","ports":[{"port":5432}]}`)
	slice("beside-sticky", "IPv4", remote)
	spec("dual", `{"clusterIP":"10.96.0.17","clusterIPs":["10.96.0.17","fd00:96::11"],"ipFamilies":["IPv4","IPv6"],"ports":[{"port":80}]}`)
	slice("dual", "IPv4", remote)
	slice("dual", "IPv6", `{"addresses":["fd00:4d:2::2"]}`)
	spec("stopping", `{"clusterIP":"10.96.0.18","ports":[{"port":80}]}`)
	slice("stopping", "IPv4", local, `{"addresses":["10.77.1.2"],"conditions":{"ready":false,"serving":true,"terminating":true}}`)
	spec("stopped", `{"clusterIP":"10.96.0.19","ports":[{"port":80}]}`)
	slice("stopped", "IPv4", `{"addresses":["10.77.1.2"],"conditions":{"ready":false,"serving":true,"terminating":true}}`, `{"addresses":["10.77.2.2"],"conditions":{"ready":false}}`)
	spec("empty", `{"clusterIP":"10.96.0.20","ports":[{"port":80}]}`)
	spec("headless", `{"clusterIP":"None","ports":[{"port":8081}]}`)
	both("headless")
	spec("alias", `{"type":"ExternalName","externalName":"db.example","ports":[{"port":8082}]}`)

	for _, setting := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} { // the kernel path takes them
		if err := os.WriteFile("/proc/sys/net/"+setting, []byte("1"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for name, how := range map[string][]string{
		"portable": {"-engine=portable"}, "epoll": {"-engine=epoll"}, "ring": {"-engine=ring"}, "kernel": {"-kernel=auto", "-check_endpoints"},
	} {
		t.Run(name, func(t *testing.T) {
			address, url := operatorsURL(t)
			p := start(t, nil, append(how, "-metrics_bind_address="+address, "-registry_dir="+c.dir, "-service_address=cluster", "-service_cidr="+clusterRanges, "-node_name=node1", "-bind_address=0.0.0.0")...)
			p.Stderr.Wait(t, "the first state is in force")
			if name == "kernel" {
				awaitCarried(t, url, carriedOfCluster)
			}
			everyone := []place{c.node, c.pod, c.host}
			for _, row := range []struct {
				name string
				from []place
				at   string
				want string // who answers, sorted; "": nobody
			}{
				{"a cluster IP", everyone, "10.96.0.10:80", "local remote"},
				{"a pod may be its own endpoint (hairpin)", []place{c.pod}, "10.96.0.10:80", "local remote"},
				{"a node port", everyone, node4 + ":30080", "local remote"},
				{"a node port at another address of the node", []place{c.node, c.pod}, pod4 + ":30080", "local remote"},
				{"a node port at the loopback", []place{c.node}, "127.0.0.1:30080", "local remote"},
				{"an external IP", everyone, "198.51.100.7:80", "local remote"},
				{"a port that the service does not have", everyone, "10.96.0.10:81", ""},
				{"the address of a load balancer", []place{c.host}, "198.51.100.8:80", "local remote"},
				{"that, from outside of its source ranges", []place{c.pod}, "198.51.100.8:80", ""},
				{"the cluster IP of that, which has no source ranges", everyone, "10.96.0.11:80", "local remote"},
				{"a load balancer that is a proxy", everyone, "198.51.100.9:80", ""},
				{"externalTrafficPolicy Local: a node port", []place{c.host}, node4 + ":30082", "local"},
				{"externalTrafficPolicy Local: a node port, for who is in the cluster", []place{c.node, c.pod}, node4 + ":30082", "local"}, // Kubernetes: all endpoints
				{"externalTrafficPolicy Local: a load balancer", []place{c.host}, "198.51.100.12:80", "local"},
				{"externalTrafficPolicy Local: the cluster IP", everyone, "10.96.0.12:80", "local remote"},
				{"externalTrafficPolicy Local without an endpoint here: a node port", []place{c.host}, node4 + ":30083", ""},
				{"externalTrafficPolicy Local without an endpoint here: the cluster IP", everyone, "10.96.0.13:80", "remote"},
				{"internalTrafficPolicy Local", []place{c.node, c.pod}, "10.96.0.14:80", "local"},
				{"both families, over IPv4", everyone, "10.96.0.17:80", "remote"},
				{"both families, over IPv6", []place{c.node, c.pod}, "[fd00:96::11]:80", "local6"},
				{"an endpoint that terminates beside one that is ready", everyone, "10.96.0.18:80", "local"},
				{"only endpoints that terminate, or are not ready", everyone, "10.96.0.19:80", "remote"},
				{"no endpoint", everyone, "10.96.0.20:80", ""},
				{"a service of the node", everyone, node4 + ":5432", "local"},
				{"a cluster IP with the same port", everyone, "10.96.0.21:5432", "remote"},
				{"a cluster IP with the same port, which userspace serves", everyone, "10.96.0.22:5432", "remote"},
				{"a headless service has no port", []place{c.node}, node4 + ":8081", ""},
				{"an alias has no port", []place{c.node}, node4 + ":8082", ""},
			} {
				for _, from := range row.from {
					if got := from.whoAnswers(netip.MustParseAddrPort(row.at)); got != row.want {
						t.Errorf("%s: at %s, %s gets %q; want %q", row.name, row.at, from.name, got, row.want)
					}
				}
			}
			for _, from := range everyone {
				if got := from.whoAnswers(netip.MustParseAddrPort("10.96.0.15:80")); got != "local" && got != "remote" {
					t.Errorf("affinity: %s gets %q; want one endpoint, always the same", from.name, got)
				}
				if got := from.whoAnswersUDP(netip.MustParseAddrPort("10.96.0.16:53")); got != "local remote" {
					t.Errorf("UDP: %s gets %q", from.name, got)
				}
			}
			if name == "kernel" {
				awaitCarried(t, url, carriedOfCluster)
				for _, service := range []string{"web", "dual", "dns", "beside", "at-node"} {
					proxytest.Eventually(t, func() bool { return carriedOf(t, url, service) >= manyClients }, "the kernel to have carried the clients of %s", service)
				}
			}
			if got := c.host.health(node4 + ":32012"); got != http.StatusOK {
				t.Errorf("healthCheckNodePort answers a load balancer with %d", got)
			}
		})
	}
}

// newCluster makes a node with a pod and a host beside it, and returns an address of the node that the host is next to, and one that the pod is next to.
func newCluster(t *testing.T) (c *cluster, nextToHost, nextToPod string) {
	t.Helper()
	host, pod := proxytest.NewPeerOn(t, 1), proxytest.NewPeerOn(t, 2)
	route := func(of *proxytest.Peer) {
		of.Do(t, func() error {
			for _, args := range [][]string{{"-4", "route", "add", "default", "via", of.Here.String()}, {"-6", "route", "add", "default", "via", of.Here6.String()}} {
				if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
					return fmt.Errorf("ip %v: %w: %s", args, err, out)
				}
			}
			return nil
		})
	}
	route(host)
	route(pod)
	serve := func(of *proxytest.Peer, at netip.Addr, name string) {
		of.Do(t, func() error {
			proxytest.ServeTCP(t, netip.AddrPortFrom(at, 8080).String(), proxytest.Identify(name))
			proxytest.ServeUDP(t, netip.AddrPortFrom(at, 8080).String(), proxytest.IdentifyUDP(name))
			return nil
		})
	}
	serve(pod, pod.There, "local")
	serve(pod, pod.There6, "local6")
	serve(host, host.There, "remote")
	c = &cluster{
		node: place{"the node", func(task func() error) error { return task() }}, pod: place{"the pod", pod.Within}, host: place{"the host", host.Within},
		dir: t.TempDir(),
	}
	return c, host.Here.String(), pod.Here.String()
}

// carriedOfCluster is how many ports of the cluster the kernel can carry: the others are of services that want more, or have no endpoint that is checked.
const carriedOfCluster = 13

// awaitCarried waits until the kernel carries so many ports.
func awaitCarried(t *testing.T, url string, want float64) {
	t.Helper()
	var ports map[string]float64
	if !proxytest.Becomes(func() bool {
		ports = make(map[string]float64)
		for _, m := range scraped(t, url) {
			if m.name == "kubeproxy_kernel_ports" && m.value > 0 {
				ports[m.labels["reason"]] = m.value
			}
		}
		return ports["carried"] == want
	}) {
		t.Fatalf("of the ports the kernel carries %v; want %v carried", ports, want)
	}
}

// carriedOf returns how many connections and flows of a service the kernel has carried. It counts them once in ten seconds.
func carriedOf(t *testing.T, url, service string) (n float64) {
	t.Helper()
	for _, m := range scraped(t, url) {
		if m.name == "kubeproxy_kernel_connections_total" && m.labels["service"] == "default/"+service {
			n += m.value
		}
	}
	return n
}

// manyClients are so many that both of two endpoints are met, also where the kernel chooses at random.
const manyClients = 24

// whoAnswers returns who answers clients over TCP, sorted; "": nobody, and each is refused.
func (p *place) whoAnswers(at netip.AddrPort) string {
	return p.meets(func() (string, error) {
		conn, err := net.DialTimeout("tcp", at.String(), 5*time.Second)
		if err != nil {
			return "", err
		}
		defer conn.Close()
		name, err := io.ReadAll(conn)
		return string(name), err
	})
}

// whoAnswersUDP is the same over UDP.
func (p *place) whoAnswersUDP(at netip.AddrPort) string {
	return p.meets(func() (string, error) {
		conn, err := net.Dial("udp", at.String())
		if err != nil {
			return "", err
		}
		defer conn.Close()
		answer := make([]byte, 100)
		for range 10 { // a datagram may be lost
			conn.Write([]byte("who is it?"))
			conn.SetReadDeadline(time.Now().Add(time.Second))
			if n, err := conn.Read(answer); err == nil {
				name, _, _ := strings.Cut(string(answer[:n]), " ")
				return name, nil
			}
		}
		return "", fmt.Errorf("no answer")
	})
}

// meets has clients come, one after the other.
func (p *place) meets(one func() (string, error)) string {
	var names []string
	for range manyClients {
		name := ""
		if err := p.within(func() (err error) {
			name, err = one()
			return err
		}); err != nil {
			if !strings.Contains(err.Error(), "refused") && !strings.Contains(err.Error(), "reset") {
				return err.Error()
			}
			continue
		}
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " ")
}

// health returns the status with which a health check is answered.
func (p *place) health(at string) (status int) {
	_ = p.within(func() error {
		conn, err := net.DialTimeout("tcp", at, 5*time.Second)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = fmt.Fprintf(conn, "GET /healthz HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", at)
		if err != nil {
			return err
		}
		answer, _ := io.ReadAll(conn)
		_, err = fmt.Sscanf(string(answer), "HTTP/1.1 %d", &status)
		return err
	})
	return status
}
