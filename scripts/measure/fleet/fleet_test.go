//go:build linux

package fleet

import (
	"errors"
	"net"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.uber.org/goleak"

	"kubeproxy/config/etcdsource/etcdtest"
	"kubeproxy/registry"
	"kubeproxy/registry/decode"
	"kubeproxy/scripts/internal/measure"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/golang/glog.(*fileSink).flushDaemon"))
}

func TestRecordsAreWhatANodeServes(t *testing.T) {
	const n = 10
	for _, i := range []int{0, 1, 999, maxServices - 1} {
		name := serviceName(i)
		spec, warnings, err := decode.Decode(registry.SpecsPrefix+name, []byte(specRecord(name, firstPort+i)))
		if err != nil || len(warnings) > 0 || spec.Service == nil || spec.Service.Ports[0].Number != uint16(firstPort+i) {
			t.Errorf("spec of %s: %+v, %v, %v; want port %d and no complaint", name, spec.Service, warnings, err, firstPort+i)
		}
		endpoints, warnings, err := decode.Decode(registry.EndpointsPrefix+name, []byte(endpointsRecord(name, endpointsOf(i, n))))
		if err != nil || len(warnings) > 0 || endpoints.Endpoints == nil || endpoints.Endpoints.Of("").Len() != n {
			t.Errorf("endpoints of %s: %+v, %v, %v; want %d and no complaint", name, endpoints.Endpoints, warnings, err, n)
		}
	}
}

func TestEveryNodeHasAnAddressOfItsOwn(t *testing.T) {
	seen := make(map[netip.Addr]bool)
	for i := range maxNodes {
		host := nodeHost(i)
		if seen[host] || !host.IsLoopback() || host.As4()[3] == 0 || host.As4()[3] == 255 {
			t.Errorf("node %d has %v", i, host)
		}
		seen[host] = true
	}
}

func TestSourcesTellWhenEachHadAChange(t *testing.T) {
	for _, way := range []string{direct, apiServer} {
		t.Run(way, func(t *testing.T) { tellsOfChanges(t, way) })
	}
}

func tellsOfChanges(t *testing.T, way string) {
	etcd := etcdtest.StartProcess(t)
	c := etcd.Client(t)
	name := serviceName(1)
	put := func(port int) int64 {
		t.Helper()
		resp, err := c.Put(t.Context(), registry.SpecsPrefix+name, specRecord(name, port))
		if err != nil {
			t.Fatal(err)
		}
		return resp.Header.Revision
	}
	put(1)

	ours, theirs := net.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- obey(theirs) }()
	f, url := &sources{n: 3, talk: ours, way: way}, etcd.URL()
	if way == apiServer {
		server, follow, err := mirror(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var following sync.WaitGroup
		following.Go(func() { _ = follow() }) // ends with the test
		t.Cleanup(following.Wait)
		between := httptest.NewServer(server)
		t.Cleanup(between.Close)
		url = between.URL
	}
	if err := f.follow(url, time.Hour); err != nil {
		t.Fatal(err)
	}
	first, err := f.served(t.Context(), change{revision: 1})
	if err != nil || len(first) != 3 {
		t.Fatalf("%v, %v; want three", first, err)
	}
	for port := range 3 {
		again, err := f.served(t.Context(), change{revision: put(10 + port)})
		if err != nil || len(again) != 3 {
			t.Fatalf("%v, %v; want three", again, err)
		}
		if slices.Min(again) <= slices.Max(first) {
			t.Errorf("a later change came at %v, the one before at %v", again, first)
		}
		first = again
	}
	if n, err := f.resyncs(t.Context()); n != 0 || err != nil {
		t.Errorf("%v resyncs, %v; want none within an hour", n, err)
	}
	ours.Close()
	if err := <-ended; err != nil {
		t.Errorf("the sources ended with %v", err)
	}
}

// docs/scale.md says so.
func TestHowManyEndpointsFitIntoARecord(t *testing.T) {
	c := etcdtest.StartProcess(t).Client(t)
	name := serviceName(0)
	for _, test := range []struct {
		endpoints int
		fit       bool
	}{{74000, true}, {76000, false}} {
		record := endpointsRecord(name, endpointsOf(0, test.endpoints))
		_, err := c.Put(t.Context(), registry.EndpointsPrefix+name, record)
		if test.fit && err != nil || !test.fit && !errors.Is(err, rpctypes.ErrRequestTooLarge) {
			t.Errorf("%d endpoints, %d bytes: %v; want them to fit: %v", test.endpoints, len(record), err, test.fit)
		}
	}
}

func TestWhatMakesNoSenseIsRefused(t *testing.T) {
	for _, args := range []string{
		"more", "-nodes=-1", "-nodes=1001", "-services=0", "-services=20001", "-endpoints=0", "-rounds=0", "-idle=0",
		"-sources=ten", "-sources=0", "-steps=sleep", "-via=carrier-pigeon", "-outages=soon", "-no-such", "-nice=20", "-nice=-1", "-freeze=0", "-rate=0", "-puts=elsewhere",
		"-via=api-server", "-via=grpc-proxy",
	} {
		_, err := parseOptions(strings.Fields(args))
		if !errors.As(err, new(measure.UsageError)) {
			t.Errorf("%s: %v; want an error about the command line", args, err)
		}
	}
	o, err := parseOptions(strings.Fields("-nodes=3 -sources=none -steps=change,idle -via=direct -outages=1s,2s -nice=19 -freeze=5s -rate=10 -puts=outside"))
	if o.nice != 19 || o.freezes != 5*time.Second || o.rate != 10 || o.where != outside {
		t.Errorf("of the step frozen: %+v", o)
	}
	if err != nil || o.nodes != 3 || o.sources != nil || len(o.steps) != 2 || len(o.ways) != 1 || len(o.outages) != 2 {
		t.Errorf("%+v, %v", o, err)
	}
}
