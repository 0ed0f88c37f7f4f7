//go:build linux

package kernelpath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/mdlayher/netlink"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/registry"
	"kubeproxy/scripts/internal/measure"
	"kubeproxy/scripts/internal/try"
)

// What a change costs: an endpoint of one service is replaced in etcd, and the kernel says when its table has the new one.

// Addresses of the backend, all of which are checked, since a service has them all.
var changing = []string{backendAddr, "10.81.2.3", "10.81.2.4"}

const (
	metricsAddr   = "127.0.0.1:10249"
	changesARound = 100
	betweenTwo    = 20 * time.Millisecond
	atTheLatest   = 5 * time.Second
)

var (
	changeColumns = []measure.Metric{measure.Column("p50", "p50 ms", 1e3), measure.Column("p99", "p99 ms", 1e3), measure.Column("cpu", "CPU ms", 1e3)}
	changeBars    = []measure.Bar{{Key: "p50", Is: measure.AtMost, Bar: 20}, {Key: "cpu", Is: measure.AtMost, Bar: 10}}
)

// runChanges measures changes, from the write to etcd until they are in force in the kernel.
func (b *bench) runChanges(ctx context.Context) (err error) {
	defer try.Catch(&err)
	try.Do(b.build())
	pid := strconv.Itoa(b.backend.cmd.Process.Pid)
	for _, addr := range changing[1:] {
		try.Do(run("nsenter", "-t", pid, "-n", "ip", "addr", "add", addr+"/24", "dev", "eth"))
	}
	etcd := try.Get(measure.StartEtcd(b.Group, b.opts.Etcd))
	client := try.Get(measure.NewEtcdClient(etcd.URL()))
	defer client.Close()
	ops := []clientv3.Op{putService("all", rulePort), putEndpoints("all", changing...)}
	for i := range b.opts.services {
		ops = append(ops, putService(nameOf(i), firstMany+i), putEndpoints(nameOf(i), changing[:2]...))
	}
	try.Do(measure.Store(ctx, client, 120, ops...))
	proxy := try.Get(b.Start("kube-proxy", b.opts.Binary, "-etcd_servers="+etcd.URL(), "-kernel=auto", "-healthz_bind_address=", "-metrics_bind_address="+metricsAddr))
	began := time.Now()
	try.Do(proxy.Await(2*time.Minute, func() bool {
		numbers, err := measure.Scrape(ctx, netip.MustParseAddrPort(metricsAddr))
		return err == nil && numbers.Sum("kubeproxy_kernel_ports", "reason", "carried") >= float64(1+b.opts.services)
	}))
	fmt.Printf("all in the kernel %v after the start of the proxy\n", time.Since(began).Round(time.Millisecond))
	elements := try.Get(watchElements())
	t := measure.NewTable("change", fmt.Sprintf("one endpoint replaced in etcd, with %d services of two endpoints: until the kernel has it", b.opts.services),
		changeColumns, measure.Subject{Name: "kernel", Ours: true})
	second := make([]int, b.opts.services) // of the two others in changing, that which a service has
	try.Do(b.Rounds(ctx, t, b.opts.Rounds, func(ctx context.Context, _ int) (s measure.Sample, err error) {
		defer try.Catch(&err)
		used, waited := try.Get(measure.CPUOf([]int{proxy.PID()})), make([]float64, 0, changesARound)
		for i := range changesARound {
			of := i % len(second)
			second[of] = 1 - second[of]
			op := putEndpoints(nameOf(of), changing[0], changing[1+second[of]])
			time.Sleep(betweenTwo)
			for len(elements) > 0 {
				<-elements // of the change before
			}
			put := time.Now()
			try.Get(client.Do(ctx, op))
			select {
			case at := <-elements:
				waited = append(waited, at.Sub(put).Seconds())
			case <-time.After(atTheLatest):
				s.Fail(1, "the kernel has not followed a change")
			}
		}
		cpu := try.Get(measure.CPUOf([]int{proxy.PID()})) - used
		slices.Sort(waited)
		if n := len(waited); n > 0 {
			s.Values = map[string]float64{"p50": waited[n/2], "p99": waited[n*99/100], "cpu": cpu.Seconds() / changesARound}
		}
		return s, nil
	}))
	t.Judge(changeBars)
	t.Print(os.Stdout)
	return errors.Join(b.Report.Add(t, b.JSON), b.Report.Err(os.Stdout, func(v measure.Verdict) bool { return v == measure.Missed }))
}

func nameOf(i int) string { return fmt.Sprintf("many-%05d", i) }

func putService(name string, port int) clientv3.Op {
	return clientv3.OpPut(registry.SpecsPrefix+name, fmt.Sprintf(`{"kind":"Service","apiVersion":"v1beta1","id":%q,"port":%d,"annotations":%s}`, name, port, checked))
}

func putEndpoints(name string, hosts ...string) clientv3.Op {
	var addrs []netip.AddrPort
	for _, host := range hosts {
		addrs = append(addrs, netip.AddrPortFrom(netip.MustParseAddr(host), echoPort))
	}
	return clientv3.OpPut(registry.EndpointsPrefix+name, measure.EndpointsRecord(name, addrs))
}

// watchElements gives the times at which elements came into a set of the kernel, which reports them when a transaction is in force.
func watchElements() (<-chan time.Time, error) {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, &netlink.Config{Groups: 1 << (unix.NFNLGRP_NFTABLES - 1)})
	if err != nil {
		return nil, err
	}
	times := make(chan time.Time, 1024)
	go func() {
		for {
			messages, err := conn.Receive()
			if err != nil {
				return // a change finds no time, and says so
			}
			at := time.Now()
			for _, m := range messages {
				if m.Header.Type == unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWSETELEM {
					times <- at
				}
			}
		}
	}()
	return times, nil
}
