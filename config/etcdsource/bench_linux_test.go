package etcdsource

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sys/unix"

	"kubeproxy/config/etcdconfig"
	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/config/records"
	"kubeproxy/config/records/recordstest"
	"kubeproxy/registry/decode"
)

// What a list of 10,000 services costs etcd: its processor time, and the most memory that it had. Each way has an etcd of its own, and the ways
// take turns with -count.
func BenchmarkListForEtcd10000(b *testing.B) {
	for _, way := range []struct {
		name    string
		streams bool
	}{{"pages", false}, {"stream", true}} {
		b.Run(way.name, func(b *testing.B) {
			etcd := etcdtest.StartProcess(b)
			fill(b, etcd.Client(b), 10_000)
			cfg, err := quick(etcd.URL()).Complete()
			if err != nil {
				b.Fatal(err)
			}
			r := newReader(&dialer{cfg, etcdconfig.NewNames(nil)})
			defer r.close()
			q := list(0, false, etcdconfig.DefaultPageSize, way.streams, nil, records.New(decode.Decoder{}).NewList)
			before := cpuOf(b, etcd.PID())
			for b.Loop() {
				if l, err := r.try(b.Context(), q, func() {}); err != nil || l.list.Len() != 20_000 {
					b.Fatalf("%d keys, %v", l.list.Len(), err)
				}
			}
			b.ReportMetric(float64((cpuOf(b, etcd.PID())-before).Microseconds())/1000/float64(b.N), "etcd-ms/list")
			b.ReportMetric(highestMemory(b, etcd.PID()), "etcd-MB")
		})
	}
}

// fill writes services with endpoints.
func fill(b *testing.B, c *clientv3.Client, services int) {
	b.Helper()
	var ops []clientv3.Op
	all := recordstest.Registry(services)
	for i, r := range all {
		if ops = append(ops, clientv3.OpPut(r.Key, r.Value)); len(ops) == 128 || i == len(all)-1 {
			if _, err := c.Txn(b.Context()).Then(ops...).Commit(); err != nil {
				b.Fatal(err)
			}
			ops = ops[:0]
		}
	}
}

// cpuOf returns the processor time of another process, by its clock: clock_getcpuclockid(3).
func cpuOf(b *testing.B, pid int) time.Duration {
	b.Helper()
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

// highestMemory returns the most memory that a process has had, in MB.
func highestMemory(b *testing.B, pid int) float64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	m := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if m == nil {
		b.Fatal("the process has no VmHWM")
	}
	kB, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		b.Fatal(err)
	}
	return kB / 1000
}
