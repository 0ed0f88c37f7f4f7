//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"kubeproxy/internal/backoff"
	"kubeproxy/internal/process"
	"kubeproxy/scripts/internal/try"
	"kubeproxy/scripts/torture/model"
)

// A torture is one run.
type torture struct {
	settings
	out   io.Writer
	net   network
	proxy *proxy

	tcp       [model.NumServices]service
	endpoints endpoints
	udp       []*flowsOf
	watcher   *watcher
	numbers   uint64 // of connections so far
	flows     uint64 // and of UDP clients

	drained  int // results.drained when the round began
	tookOver int // results.takeovers at that time

	results results
}

// run is the whole program: it starts everything, and has one round after the other until the time is over.
func (s settings) run(ctx context.Context, out io.Writer) (err error) {
	dir := s.dir
	if dir == "" {
		dir, err = os.MkdirTemp("", "torture")
	} else {
		err = os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return err
	}
	group := &process.Group{Dir: dir}
	t := &torture{settings: s, out: out, net: loopback}
	defer func() {
		t.close()
		t.results.print(out)
		if err != nil || s.dir != "" {
			group.Dir = "" // records and logs stay
			fmt.Fprintf(out, "records and logs: %s\n", dir)
		}
		err = errors.Join(err, group.Stop())
	}()
	defer try.Catch(&err) // after the above, which asks for err, and so before it at the end
	if s.kernel {
		t.net = try.Get(wired(group))
	}
	try.Do(t.found(group))
	fmt.Fprintf(out, "torture of %s: engine %s, seed %d, %d connections a round, for %v\n", s.binary, s.engine, s.seed, s.connections, s.duration)
	try.Do(t.proxy.start(s.engine))
	try.Do(t.awaitKernel(ctx))
	for deadline := time.Now().Add(s.duration); time.Now().Before(deadline) && ctx.Err() == nil && t.results.wrong < s.most; {
		try.Do(t.round(ctx))
	}
	return t.results.err()
}

// found makes the services and their endpoints, and what will start kube-proxy.
func (t *torture) found(group *process.Group) (err error) {
	defer try.Catch(&err)
	records := filepath.Join(group.Dir, "records")
	t.endpoints.seed = t.seed
	try.Do(t.endpoints.listen(t.net.host))
	refuses := netip.AddrPortFrom(t.net.host, try.Get(freePort()))
	for kind := range model.NumServices {
		s := service{name: kind.String(), protocol: "TCP", port: try.Get(freePort()), annotations: t.checks(10 * time.Second)}
		all := []netip.AddrPort{t.endpoints.addr(kind)}
		switch kind {
		case model.HeaderV1:
			s.annotations = map[string]string{"haproxy.org/send-proxy-protocol": "proxy-v1"}
			all = append(all, refuses)
		case model.HeaderV2:
			s.annotations = map[string]string{"haproxy.org/send-proxy-protocol": "proxy-v2"}
			all = append(all, refuses)
		}
		t.tcp[kind] = s
		try.Do(errors.Join(s.write(records), s.writeEndpoints(records, all...)))
	}
	t.udp = []*flowsOf{
		{service: service{name: "datagrams", annotations: t.checks(10 * time.Second)}, calm: true, replies: 2},
		{service: service{name: "datagrams-header", annotations: map[string]string{"haproxy.org/send-proxy-protocol": "proxy-v2"}}, calm: true, replies: 2, header: true},
		{service: service{name: "crowd", annotations: t.checks(10 * time.Second)}, calm: true, newcomer: 2 * sessionsOfService},
		{service: service{name: "storm", annotations: t.checks(4 * time.Second)}, newcomer: 20},
	}
	for _, f := range t.udp {
		f.kernel = t.kernel && !f.header
		f.protocol, f.port = "UDP", try.Get(freePort())
		var all []netip.AddrPort
		for range 3 {
			p := &place{of: f, addr: netip.AddrPortFrom(t.net.host, try.Get(freePort()))}
			f.begin()
			try.Do(p.revive())
			f.places, all = append(f.places, p), append(all, p.addr)
		}
		try.Do(errors.Join(f.write(records), f.writeEndpoints(records, all...)))
		f.flush = try.Get(t.newFlow(f))
		if f.newcomer == 0 {
			for range 20 {
				f.regulars = append(f.regulars, try.Get(t.newFlow(f)))
			}
		}
	}
	metrics := netip.AddrPortFrom(t.net.node, try.Get(freePort())).String()
	command := append(t.net.enter, t.binary, "-logtostderr", "-registry_dir="+records, "-connection_log="+filepath.Join(group.Dir, "connections.log"),
		// Nobody is silent here, so what takes long says only that the machine is busy.
		"-dial_timeout=4m", "-dial_total_timeout=4m", "-half_closed_timeout=2m", "-drain_timeout=5m", "-udp_timeout=10m",
		"-metrics_bind_address="+metrics, "-healthz_bind_address=", "-takeover="+filepath.Join(group.Dir, "takeover"))
	if t.kernel {
		command = append(command, "-kernel=auto")
	} else {
		command = append(command, "-bind_address="+t.net.node.String(), fmt.Sprintf("-max_udp_sessions_per_service=%d", sessionsOfService))
	}
	t.proxy = newProxy(group, command, metrics)
	t.watcher = newWatcher(t.proxy)
	return nil
}

// sessionsOfService is the limit of UDP sessions of each service.
const sessionsOfService = 64

// freePort finds a port below those that the kernel gives to clients.
func freePort() (uint16, error) { return process.FreePorts(10000, 30000, 1) }

// checks are the annotations of a service that the kernel may carry. An endpoint that is there has time for an answer, also on a busy machine:
// when its checks fail, its flows are deleted with the replies on their way.
func (t *torture) checks(interval time.Duration) map[string]string {
	if !t.kernel {
		return nil
	}
	return map[string]string{"haproxy.org/check": "true", "haproxy.org/check-interval": interval.String(), "kube-proxy/check-udp": checkQuestion}
}

// awaitKernel waits until the kernel carries what it may.
func (t *torture) awaitKernel(ctx context.Context) error {
	if !t.kernel {
		return nil
	}
	for deadline := time.Now().Add(readyIn); ; backoff.Sleep(ctx, 50*time.Millisecond) {
		m, err := t.proxy.scrape(ctx)
		if err != nil {
			return err
		}
		const want = 5 // of the services, all but those with headers
		if carried := m.Sum("kubeproxy_kernel_ports", "reason", "carried"); carried == want {
			return nil
		} else if time.Now().After(deadline) {
			return fmt.Errorf("the kernel carries %v ports after %v; want %d", carried, readyIn, want)
		}
	}
}

func (t *torture) newFlow(f *flowsOf) (*flow, error) {
	t.flows++
	return newFlow(f, t.flows, t.net.client(t.flows), netip.AddrPortFrom(t.net.node, f.port))
}

// close ends clients and endpoints.
func (t *torture) close() {
	t.endpoints.close()
	for _, f := range t.udp {
		for _, c := range append(f.regulars, f.flush) {
			if c != nil {
				c.close()
			}
		}
		for _, p := range f.places {
			p.die()
		}
	}
}

// round has all clients talk, waits until everything is quiet, and judges.
func (t *torture) round(ctx context.Context) (err error) {
	defer try.Catch(&err)
	before := try.Get(t.look(ctx))
	var connections []*connection
	for range t.connections {
		connections = append(connections, t.newConnection())
	}
	var clients, others sync.WaitGroup
	var first atomic.Pointer[error]
	fail := func(err error) {
		if err != nil {
			first.CompareAndSwap(nil, &err)
		}
	}
	busy, calm := context.WithCancel(ctx)
	defer calm()
	r := rand.New(rand.NewPCG(t.seed, t.numbers)) // numbers are never used twice
	for _, c := range connections {
		clients.Go(func() { t.connect(c) })
	}
	var newcomers []*flow
	for _, f := range t.udp {
		all := f.regulars
		for range f.newcomer {
			c := try.Get(t.newFlow(f))
			newcomers, all = append(newcomers, c), append(all, c)
		}
		for _, c := range all {
			r := rand.New(rand.NewPCG(r.Uint64(), c.number))
			clients.Go(func() {
				time.Sleep(time.Duration(r.IntN(int(500 * time.Millisecond))))
				fail(c.talk(r))
			})
		}
		if !f.calm {
			r := rand.New(rand.NewPCG(r.Uint64(), 0))
			others.Go(func() { fail(t.reap(busy, f, r)) })
		}
	}
	if places := t.settled(); len(places) > 0 {
		others.Go(func() { t.watcher.run(busy, places) })
	}
	disturber := rand.New(rand.NewPCG(r.Uint64(), 1))
	others.Go(func() { fail(t.disturb(busy, disturber)) })
	clients.Wait()
	calm()
	others.Wait()
	if err := first.Load(); err != nil {
		return *err
	}
	try.Do(context.Cause(ctx))
	try.Do(t.judge(ctx, before, connections))
	for _, c := range newcomers {
		c.close()
	}
	return nil
}

// newConnection makes the next connection, and lets endpoints know it.
func (t *torture) newConnection() *connection {
	t.numbers++
	number := t.numbers
	if t.only != 0 {
		number = t.only
	}
	c := &connection{number: t.numbers, script: model.Draw(t.seed, number), drawn: number}
	t.endpoints.mu.Lock()
	defer t.endpoints.mu.Unlock()
	t.endpoints.open[c.number] = c
	return c
}

// connect plays the client of a connection.
func (t *torture) connect(c *connection) {
	r := rand.New(rand.NewPCG(t.seed, c.number))
	time.Sleep(time.Duration(r.IntN(int(time.Second))))
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(t.net.client(c.number), 0)), Timeout: patience}
	conn, err := d.Dial("tcp", netip.AddrPortFrom(t.net.node, t.tcp[c.script.Service].port).String())
	if err != nil {
		c.client = model.Side{Saw: model.Refused, Problem: err.Error(), Differs: -1}
		return
	}
	c.addr = conn.LocalAddr().(*net.TCPAddr).AddrPort()
	p := newPlayer(conn.(*net.TCPConn), stream(c.number))
	c.client = p.play(c.script.Client, r)
	if p.received >= greeting {
		c.heard = p.peer()
	}
}
