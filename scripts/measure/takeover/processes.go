//go:build linux

package takeover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/internal/process"
	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// hardStop is HAProxy with a bound on the life of an old process.
const hardStop = "haproxy, hard-stop-after 1s"

// udpTimeout ends UDP sessions soon after the load, so that their descriptors can be counted.
const udpTimeout = 10 * time.Second

// A proxy is one that is replaced by a new process of its own again and again.
type proxy struct {
	bench   *bench
	host    netip.Addr
	manager *net.UnixConn // hears what a service manager hears: sd_notify(3)
	started *process.Process
	master  int // of HAProxy, which stays; else 0
	pid     int // of the process that accepts clients
}

// putServices offers the three services.
func (b *bench) putServices(ctx context.Context) error {
	c, err := measure.NewEtcdClient(b.etcdURL)
	if err != nil {
		return err
	}
	defer c.Close()
	var ops []clientv3.Op
	for _, s := range []struct {
		name, protocol string
		port           uint16
		endpoints      int
	}{{"held", "TCP", b.at.held, endpoints}, {"slow", "TCP", b.at.slow, 1}, {"udp", "UDP", b.at.udp, endpoints}} {
		ops = append(ops, clientv3.OpPut(registry.SpecsPrefix+s.name, measure.ServiceRecord(s.name, s.protocol, s.port)),
			clientv3.OpPut(registry.EndpointsPrefix+s.name, measure.EndpointsRecord(s.name, backendsAt(s.port, s.endpoints))))
	}
	return measure.Store(ctx, c, len(ops), ops...)
}

func backendsAt(port uint16, n int) (all []netip.AddrPort) {
	for i := range n {
		all = append(all, at(i, port))
	}
	return all
}

var proxyHost = netip.AddrFrom4([4]byte{127, 0, 1, 1})

func (b *bench) kubeProxyFlags() []string {
	return []string{"-logtostderr", "-etcd_servers=" + b.etcdURL, fmt.Sprintf("-bind_address=%v", proxyHost),
		fmt.Sprintf("-metrics_bind_address=%v:10249", proxyHost), fmt.Sprintf("-healthz_bind_address=%v:10256", proxyHost),
		"-takeover=" + filepath.Join(b.Dir, "takeover"), fmt.Sprintf("-udp_timeout=%v", udpTimeout), "-dial_timeout=10s", "-dial_total_timeout=20s", "-engine=" + b.engine,
		fmt.Sprintf("-max_connections_per_service=%d", b.connections+1000)}
}

// start starts a subject, and returns when it serves.
func (b *bench) start(name string) (_ *proxy, err error) {
	defer try.Catch(&err)
	p := &proxy{bench: b, host: proxyHost}
	socket := filepath.Join(b.Dir, "notify")
	try.Do(errors.Join(os.RemoveAll(socket), os.Setenv("NOTIFY_SOCKET", socket))) // for what is started
	defer os.Unsetenv("NOTIFY_SOCKET")
	p.manager = try.Get(net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"}))
	command := append([]string{b.Binary}, b.kubeProxyFlags()...)
	if name != ours {
		command = []string{try.Get(exec.LookPath("haproxy")), "-Ws", "-f", try.Get(b.writeHAProxy(name == hardStop))}
	}
	p.started = try.Get(b.Group.Start(strings.Fields(name)[0], command...))
	p.pid = p.started.PID()
	try.Get(p.hear("READY=1"))
	if name != ours {
		p.master = p.pid
		p.pid, err = p.newWorker(nil)
	}
	return p, err
}

// writeHAProxy writes a configuration as its manual advises for such work.
func (b *bench) writeHAProxy(stops bool) (string, error) {
	var text strings.Builder
	fmt.Fprintf(&text, `global
  nbthread %d
  maxconn %d
  maxpipes 64
  stats socket %s mode 600 level admin expose-fd listeners
`, runtime.NumCPU(), b.connections+1000, filepath.Join(b.Dir, "haproxy.sock"))
	if stops {
		text.WriteString("  hard-stop-after 1s\n")
	}
	text.WriteString(`defaults
  mode tcp
  balance roundrobin
  timeout connect 10s
  timeout client 1h
  timeout server 1h
  timeout client-fin 1h
  timeout server-fin 1h
`)
	for _, s := range []struct {
		name      string
		port      uint16
		endpoints int
	}{{"held", b.at.held, endpoints}, {"slow", b.at.slow, 1}} {
		fmt.Fprintf(&text, "listen %s\n  bind %v:%d\n", s.name, proxyHost, s.port)
		for i, addr := range backendsAt(s.port, s.endpoints) {
			fmt.Fprintf(&text, "  server %d %v\n", i+1, addr)
		}
	}
	file := filepath.Join(b.Dir, "haproxy.cfg")
	return file, os.WriteFile(file, []byte(text.String()), 0o600)
}

// hear waits for a notice with a line that begins like this, and returns the rest of the line.
func (p *proxy) hear(start string) (string, error) {
	if err := p.manager.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	heard := make(chan struct{})
	defer close(heard)
	if p.pid == p.started.PID() { // which ends before it says anything if it refuses its flags
		go func() {
			select {
			case <-p.started.Exited():
				_ = p.manager.SetReadDeadline(time.Now().Add(time.Second)) // its last notice may be there
			case <-heard:
			}
		}()
	}
	for buf := make([]byte, 4096); ; {
		n, err := p.manager.Read(buf)
		if err != nil {
			return "", fmt.Errorf("wait for %s: %w\n%s", start, err, p.started.LastWords())
		}
		for line := range strings.SplitSeq(string(buf[:n]), "\n") {
			if rest, ok := strings.CutPrefix(line, start); ok {
				return rest, nil
			}
		}
	}
}

// renew has a new process take the place of the one that serves, and returns when it does.
func (p *proxy) renew(ctx context.Context) (err error) {
	defer try.Catch(&err)
	try.Do(context.Cause(ctx))
	if p.master == 0 {
		try.Do(syscall.Kill(p.pid, syscall.SIGUSR2))
		_, err := fmt.Sscan(try.Get(p.hear("MAINPID=")), &p.pid)
		return err
	}
	before := try.Get(measure.Family(p.master))
	try.Do(syscall.Kill(p.master, syscall.SIGUSR2))
	try.Get(p.hear("READY=1"))
	p.pid, err = p.newWorker(before)
	return err
}

// newWorker waits for a child of HAProxy's master that was not there before.
func (p *proxy) newWorker(before []int) (int, error) {
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		family, err := measure.Family(p.master)
		if err != nil {
			return 0, err
		}
		for _, pid := range family[1:] {
			if !slices.Contains(before, pid) {
				return pid, nil
			}
		}
	}
	return 0, errors.New("haproxy has no new worker")
}

// stop ends every process that there is of it.
func (p *proxy) stop() {
	if p.master == 0 && p.pid != p.started.PID() {
		if gone, err := exitOf(p.pid, time.Now()); err == nil {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // it may just have ended
			<-gone
		}
	}
	p.started.Kill() // and its group, which old workers are in
	p.manager.Close()
}

// exitOf returns a channel that tells how long after a moment a process ended.
func exitOf(pid int, since time.Time) (<-chan time.Duration, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	gone := make(chan time.Duration, 1)
	go func() {
		defer unix.Close(fd)
		for {
			n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
			if n > 0 {
				gone <- time.Since(since)
				return
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return // it counts as one that stays
			}
		}
	}()
	return gone, nil
}

// counters returns every counter of a kube-proxy, but for those of its process.
func (p *proxy) counters(ctx context.Context) (map[string]float64, error) {
	if p.master != 0 {
		return nil, nil
	}
	page, err := measure.Scrape(ctx, netip.AddrPortFrom(p.host, 10249))
	all := make(map[string]float64)
	for name, family := range page {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") || strings.HasPrefix(name, "promhttp_") {
			continue
		}
		for _, series := range family.GetMetric() {
			key := name + fmt.Sprint(series.GetLabel())
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				all[key] = series.GetCounter().GetValue()
			case dto.MetricType_HISTOGRAM:
				all[key] = float64(series.GetHistogram().GetSampleCount())
			}
		}
	}
	return all, err
}

// decreased counts the counters that were higher before.
func decreased(before, after map[string]float64) (n int) {
	for key, was := range before {
		if after[key] < was {
			fmt.Fprintf(os.Stderr, "%s was %v, and is %v\n", key, was, after[key])
			n++
		}
	}
	return n
}

// A usage is what a process has that serves no client. Its standard streams do not count: the first process was given a pipe for its input,
// and a successor has /dev/null. Descriptors of pipes are counted apart: the engine keeps up to 32 of the pipes that it
// has once needed for each loop.
type usage struct{ descriptors, pipes, goroutines float64 }

func (p *proxy) usage(ctx context.Context) (u usage, err error) {
	defer try.Catch(&err)
	try.Get(measure.Settle(ctx, 5*time.Second, func() (float64, error) { return measure.DescriptorsOf([]int{p.pid}) }))
	dir := fmt.Sprintf("/proc/%d/fd", p.pid)
	for _, entry := range try.Get(os.ReadDir(dir)) {
		switch target, err := os.Readlink(filepath.Join(dir, entry.Name())); {
		case err != nil: // it has just been closed
		case len(entry.Name()) == 1 && entry.Name() <= "2": // a standard stream
		case strings.HasPrefix(target, "pipe:"):
			u.pipes++
		default:
			u.descriptors++
		}
	}
	if p.master == 0 {
		u.goroutines = try.Get(measure.Scrape(ctx, netip.AddrPortFrom(p.host, 10249))).Sum("go_goroutines")
	}
	return u, nil
}

// usageBackAt waits until no more is used than was at first. If that takes too long, it returns what is used.
func (p *proxy) usageBackAt(ctx context.Context, first usage) (usage, error) {
	for deadline := time.Now().Add(2 * udpTimeout); ; {
		u, err := p.usage(ctx)
		if err != nil || time.Now().After(deadline) || u.descriptors <= first.descriptors && u.goroutines <= first.goroutines {
			return u, err
		}
		if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
			return u, err
		}
	}
}
