//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"kubeproxy/internal/backoff"
	"kubeproxy/internal/scrape"
	"kubeproxy/scripts/internal/try"
	"kubeproxy/scripts/torture/model"
)

// A look is what kube-proxy and the kernel have counted by one moment.
type look struct {
	metrics scrape.Metrics
	sockets []udpSocket
	queues  int
}

func (t *torture) look(ctx context.Context) (l look, err error) {
	defer try.Catch(&err)
	l.metrics = try.Get(t.proxy.scrape(ctx))
	l.sockets = try.Get(udpSockets(os.Getpid()))
	l.queues = try.Get(queueDrops(os.Getpid()))
	if t.kernel { // the node has a network of its own
		pid := t.proxy.process().PID()
		l.sockets = append(l.sockets, try.Get(udpSockets(pid))...)
		l.queues += try.Get(queueDrops(pid))
	}
	return l, nil
}

// quietIn is how long kube-proxy may take until its log and its metrics say what has happened.
const quietIn = 15 * time.Second

// judge compares everything, again and again until nothing is wrong, or too much time has passed.
func (t *torture) judge(ctx context.Context, before look, connections []*connection) (err error) {
	defer try.Catch(&err)
	for deadline := time.Now().Add(patience); t.endpoints.serving.Load() > 0 && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond)
	}
	lines := make(map[netip.AddrPort][]model.Line)
	var wrong []string
	for deadline := time.Now().Add(quietIn); ; backoff.Sleep(ctx, 100*time.Millisecond) {
		for _, f := range t.udp {
			try.Do(f.flush.send(datagramHead, 0))
		}
		backoff.Sleep(ctx, 20*time.Millisecond)
		for _, l := range try.Get(t.proxy.readLog()) {
			if l.protocol == "tcp" {
				lines[l.client] = append(lines[l.client], l.Line)
			}
		}
		after := try.Get(t.look(ctx))
		wrong = slices.Concat(t.judgeConnections(connections, lines), t.judgeTotals(before, after, lines), t.judgeFlows(before, after))
		if len(wrong) == 0 || time.Now().After(deadline) || ctx.Err() != nil {
			break
		}
	}
	wrong = append(wrong, t.watcher.zeros...)
	t.watcher.zeros = nil
	if len(wrong) > 0 {
		fmt.Fprintf(t.out, "round %d, which ends with engine %s:\n", t.results.rounds+1, t.proxy.engine)
	}
	for _, sentence := range wrong {
		t.results.wrong++
		fmt.Fprintln(t.out, sentence)
	}
	t.results.add(connections, t.udp)
	t.results.counts = t.watcher.answers
	// What was sent last belongs to this round. It may be dropped, and then there is nothing to wait for.
	for _, f := range t.udp {
		for deadline := time.Now().Add(time.Second); !f.flush.isHeard() && time.Now().Before(deadline); {
			time.Sleep(time.Millisecond)
		}
	}
	return t.forget()
}

// judgeConnections judges each connection of the round.
func (t *torture) judgeConnections(all []*connection, lines map[netip.AddrPort][]model.Line) (wrong []string) {
	e := &t.endpoints
	e.mu.Lock()
	defer e.mu.Unlock()
	gone := 0 // clients that broke off before an endpoint knew them
	greeted := make(map[stream]bool)
	for _, c := range all {
		if c.endpoint == nil {
			gone++
			greeted[c.heard] = true
		}
		found := model.Judge(model.Connection{Script: c.script, Client: c.client, Endpoint: c.endpoint, Lines: lines[c.addr], Kernel: t.kernel})
		if c.twice {
			found = append(found, "two endpoints were given the client")
		}
		if c.named.IsValid() && c.named != c.addr {
			found = append(found, fmt.Sprintf("the PROXY header names %v; the client is %v", c.named, c.addr))
		}
		for _, sentence := range found {
			wrong = append(wrong, fmt.Sprintf("connection %d: %s\n    script:   %v\n    client:   %v\n    endpoint: %v\n    log:      %v\n    again:    %s",
				c.number, sentence, c.script, &c.client, c.endpoint, lines[c.addr], t.again(c.drawn)))
		}
	}
	for _, s := range e.unknown {
		say := func(what string) {
			wrong = append(wrong, fmt.Sprintf("an endpoint of service %v: %s (%v)", s.service, what, &s.side))
		}
		switch {
		case s.side.Problem != "":
			say(s.side.Problem)
		case t.results.takeovers > t.tookOver && s.side.Received == 0: // an attempt that was under way, and that the successor makes anew
			gone++
		case t.kernel || greeted[s.own] || s.side.Saw == model.WasReset: // it was a check, or the client broke off
		default:
			say("a connection ended before its client had sent anything")
		}
		if !t.kernel {
			gone--
		}
	}
	if gone < 0 {
		wrong = append(wrong, fmt.Sprintf("endpoints had %d connections more than clients made", -gone))
	}
	return wrong
}

// judgeTotals compares the metrics of TCP services with the connection log.
func (t *torture) judgeTotals(before, after look, lines map[netip.AddrPort][]model.Line) (wrong []string) {
	for _, s := range t.tcp {
		reasons := make(map[string]float64)
		var sent, received, count float64
		for _, of := range lines {
			for _, l := range of {
				if l.Service == s.name {
					count, sent, received = count+1, sent+float64(l.Sent), received+float64(l.Received)
					reasons[l.Reason]++
				}
			}
		}
		// A process whose connections do not go over counts what ends while it drains, and nobody is told.
		drained := t.results.drained > t.drained
		compare := func(name string, want float64, labels ...string) {
			labels = append(labels, "service", namespace+s.name)
			if got := after.metrics.Sum(name, labels...) - before.metrics.Sum(name, labels...); got > want || got < want && !drained {
				wrong = append(wrong, fmt.Sprintf("service %s: %s %v rose by %v; the connection log says %v", s.name, name, labels, got, want))
			}
		}
		compare("kubeproxy_sent_bytes_total", sent)
		compare("kubeproxy_received_bytes_total", received)
		kernel := after.metrics.Sum("kubeproxy_kernel_connections_total", "service", namespace+s.name) -
			before.metrics.Sum("kubeproxy_kernel_connections_total", "service", namespace+s.name)
		compare("kubeproxy_connections_total", count+kernel)
		compare("kubeproxy_connections_ended_total", count)
		for reason, n := range reasons {
			compare("kubeproxy_connections_ended_total", n, "reason", reason)
		}
		if active := after.metrics.Sum("kubeproxy_connections_active", "service", namespace+s.name); active != 0 {
			wrong = append(wrong, fmt.Sprintf("service %s: kubeproxy_connections_active is %v when all have ended", s.name, active))
		}
	}
	return wrong
}

// namespace is that of every service, as metrics have it.
const namespace = "default/"

// judgeFlows draws up the ledgers of the UDP services.
func (t *torture) judgeFlows(before, after look) (wrong []string) {
	for _, f := range t.udp {
		rose := func(name string) int {
			labels := []string{"service", namespace + f.name}
			return int(after.metrics.Sum(name, labels...) - before.metrics.Sum(name, labels...))
		}
		f.mu.Lock()
		l := f.now
		f.mu.Unlock()
		l.Drained = t.results.drained > t.drained
		l.Sent, l.Received = rose("kubeproxy_udp_sent_datagrams_total"), rose("kubeproxy_udp_received_datagrams_total")
		l.Dropped, l.Failures = rose("kubeproxy_udp_dropped_datagrams_total"), rose("kubeproxy_dial_failures_total")
		l.QueueFull = after.queues - before.queues
		at := make(map[uint16]bool)
		for _, p := range f.places {
			at[p.addr.Port()] = true
		}
		full := func(of func(udpSocket) bool) int { return drops(after.sockets, of) - drops(before.sockets, of) }
		l.EndpointFull = full(func(s udpSocket) bool { return at[s.local] && s.remote == 0 })
		l.SessionFull = max(0, full(func(s udpSocket) bool { return at[s.remote] }))
		l.ClientFull = full(func(s udpSocket) bool { return s.remote == f.port })
		f.mu.Lock()
		f.last = l
		f.mu.Unlock()
		for _, sentence := range l.Judge() {
			wrong = append(wrong, fmt.Sprintf("%s\n    ledger: %+v", sentence, l))
		}
	}
	return wrong
}

func drops(all []udpSocket, of func(udpSocket) bool) (n int) {
	for _, s := range all {
		if of(s) {
			n += s.drops
		}
	}
	return n
}

// forget has the next round begin with nothing.
func (t *torture) forget() error {
	e := &t.endpoints
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.open)
	e.unknown = nil
	t.drained, t.tookOver = t.results.drained, t.results.takeovers
	for _, f := range t.udp {
		f.begin()
	}
	return nil
}
