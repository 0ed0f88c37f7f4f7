//go:build linux

package peers

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"kubeproxy/internal/process"
	"kubeproxy/internal/scrape"
	"kubeproxy/scripts/internal/load"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// A proxy is something that clients reach backends through. The one called direct is nothing at all:
// clients go to the backends themselves.
type proxy struct {
	name string
	ours bool
	udp  bool
	host netip.Addr // where it listens
	at   load.Ports // the numbers are the same for all peers, who have addresses of their own
	cmd  []string
	// slow is how long it may take until all its ports answer.
	slow time.Duration

	ps      *process.Group
	process *process.Process
	pids    []int // itself and its workers

	viewed  int // by so many viewers, while its process runs
	viewers viewers
}

// proxyHost is the address that the i-th proxy listens on.
func proxyHost(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 0, 1, byte(1 + i)}) }

// direct is no proxy: the backends.
func direct(at load.Ports) *proxy { return &proxy{name: "direct", udp: true, at: at} }

func (p *proxy) subject() measure.Subject {
	return measure.Subject{Name: p.name, Ours: p.ours, Peer: !p.ours && !p.isDirect()}
}

func (p *proxy) isDirect() bool { return p.cmd == nil }

// to gives the addresses that clients use for one of the ports.
func (p *proxy) to(port uint16) []netip.AddrPort {
	if p.isDirect() {
		return load.BackendsAt(port)
	}
	return []netip.AddrPort{netip.AddrPortFrom(p.host, port)}
}

// start starts the proxy's process, and returns once all its ports answer. The flags are added if it is ours.
func (p *proxy) start(flags ...string) (err error) {
	defer try.Catch(&err)
	if p.isDirect() {
		return nil
	}
	if !p.ours {
		flags = nil
	}
	p.process = try.Get(p.ps.Start(p.name, slices.Concat(p.cmd, flags)...))
	try.Do(p.process.Await(p.slow, p.ready))
	p.pids, err = measure.Family(p.process.PID())
	if err == nil && p.viewed > 0 {
		err = p.viewers.come(p.viewed, "http://"+p.operators().String()+"/status/events?of=/")
	}
	return err
}

// ready reports whether backends answer through the proxy, over TCP and, if it does that, UDP.
func (p *proxy) ready() bool {
	return load.Answers(unix.SOCK_STREAM, p.to(p.at.Bulk)[0]) && load.Answers(unix.SOCK_STREAM, p.to(p.at.Echo)[0]) &&
		(!p.udp || load.Answers(unix.SOCK_DGRAM, p.to(p.at.UDP)[0]))
}

// operators is where every kube-proxy of ours answers operators.
func (p *proxy) operators() netip.AddrPort { return netip.AddrPortFrom(p.host, 10249) }

// ask has a kube-proxy tell its metrics.
func (p *proxy) ask(ctx context.Context) (scrape.Metrics, error) {
	return measure.Scrape(ctx, p.operators())
}

// collect has the process collect its garbage, which it does by itself within two minutes. It must have been
// started with -profiling.
func (p *proxy) collect(ctx context.Context) error {
	_, err := measure.Page(ctx, p.operators(), "/debug/pprof/heap?gc=1")
	return err
}

// restart puts a new process in the place of the old one.
func (p *proxy) restart(flags ...string) error {
	p.process.Stop()
	p.viewers.leave()
	return p.start(flags...)
}

// The peers' configurations are as their manuals advise for such work. What they have in common: as
// many threads as processors, no logs, keepalive on both connections as kube-proxy has it, half-closed
// connections carried, the same endpoints in turn, one listening address.

// peerPath finds the program of a peer: the one that HAPROXY or NGINX names in the environment, a path or a name, or else the installed one.
// Nothing is built. An error says what was looked for.
func peerPath(name string) (string, error) {
	return exec.LookPath(cmp.Or(os.Getenv(strings.ToUpper(name)), name))
}

// haproxy makes a peer of an installed HAProxy. Bulk goes through a port of its own that always uses
// splice(2); round trips would only pay for it. (With splice-auto HAProxy copies for the first seconds
// of a flow, which here would be all of it.) It carries no UDP.
func haproxy(ps *process.Group, host netip.Addr, at, behind load.Ports, descriptors int) (_ *proxy, err error) {
	defer try.Catch(&err)
	path := try.Get(peerPath("haproxy"))
	const pipes = 64 // a quarter of maxconn by default, which would not fit into the descriptors
	var b strings.Builder
	fmt.Fprintf(&b, `global
  nbthread %d
  maxconn %d
  maxpipes %d
defaults
  mode tcp
  balance roundrobin
  option clitcpka
  option srvtcpka
  timeout connect 5s
  timeout client 1h
  timeout server 1h
  timeout client-fin 60s
  timeout server-fin 60s
`, runtime.NumCPU(), (descriptors-200)/2-pipes, pipes)
	for _, s := range []struct {
		name, option string
		port, behind uint16
	}{{"echo", "", at.Echo, behind.Echo}, {"bulk", "  option splice-request\n  option splice-response\n", at.Bulk, behind.Bulk}} {
		fmt.Fprintf(&b, "listen %s\n  bind %v\n%s", s.name, netip.AddrPortFrom(host, s.port), s.option)
		for i, addr := range load.BackendsAt(s.behind) {
			fmt.Fprintf(&b, "  server %d %v\n", i+1, addr)
		}
	}
	file := filepath.Join(ps.Dir, "haproxy.cfg")
	try.Do(os.WriteFile(file, []byte(b.String()), 0o600))
	return &proxy{name: "haproxy", host: host, at: at, cmd: []string{path, "-db", "-f", file}, slow: 10 * time.Second, ps: ps}, nil
}

var modulesPath = regexp.MustCompile(`--modules-path=(\S+)`)

// nginx makes a peer of an installed nginx with its stream module. Over UDP it has a socket for each
// worker, as its manual advises, and the same receive buffer as kube-proxy.
func nginx(ps *process.Group, host netip.Addr, at, behind load.Ports, descriptors int) (*proxy, error) {
	path, err := peerPath("nginx")
	if err != nil {
		return nil, err
	}
	about, err := exec.Command(path, "-V").CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("nginx -V: %w", err)
	}
	loadModule := ""
	switch text := string(about) + " "; {
	case strings.Contains(text, "--with-stream "):
	case modulesPath.MatchString(text):
		module := filepath.Join(modulesPath.FindStringSubmatch(text)[1], "ngx_stream_module.so")
		if _, err := os.Stat(module); err != nil {
			return nil, fmt.Errorf("its stream module: %w", err)
		}
		loadModule = "load_module " + module + ";\n"
	default:
		return nil, fmt.Errorf("%s has no stream module", path)
	}
	var b strings.Builder
	if os.Geteuid() == 0 {
		b.WriteString("user root;\n")
	}
	fmt.Fprintf(&b, `%[1]sdaemon off;
pid %[2]s/nginx.pid;
error_log stderr crit;
worker_processes %[3]d;
worker_rlimit_nofile %[4]d;
events {
  worker_connections %[4]d;
}
stream {
  access_log off;
  proxy_connect_timeout 5s;
  proxy_timeout 1h;
  proxy_half_close on;
  proxy_socket_keepalive on;
`, loadModule, ps.Dir, runtime.NumCPU(), descriptors)
	for _, s := range []struct {
		name, listen, options string
		port, behind          uint16
	}{
		{"echo", "so_keepalive=on", "", at.Echo, behind.Echo},
		{"bulk", "so_keepalive=on", "", at.Bulk, behind.Bulk},
		{"udp", "udp reuseport rcvbuf=4m", fmt.Sprintf(" proxy_timeout %ds;", int(udpTimeout.Seconds())), at.UDP, behind.UDP},
	} {
		fmt.Fprintf(&b, "  upstream %s {\n", s.name)
		for _, addr := range load.BackendsAt(s.behind) {
			fmt.Fprintf(&b, "    server %v;\n", addr)
		}
		fmt.Fprintf(&b, "  }\n  server { listen %v %s;%s proxy_pass %s; }\n", netip.AddrPortFrom(host, s.port), s.listen, s.options, s.name)
	}
	b.WriteString("}\n")
	file := filepath.Join(ps.Dir, "nginx.conf")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		return nil, err
	}
	return &proxy{name: "nginx", udp: true, host: host, at: at, cmd: []string{path, "-p", ps.Dir, "-e", "stderr", "-c", file}, slow: 10 * time.Second, ps: ps}, nil
}

// udpTimeout is after how much silence UDP sessions end. Every round brings new clients; the old ones
// have to be gone before the descriptors are.
const udpTimeout = 10 * time.Second
