//go:build linux

package kernelpath

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"kubeproxy/scripts/internal/measure"
)

// The records of a service with a TCP and a UDP port of one number, and of its endpoint.
const (
	serviceRecord = `{"kind":"Service","apiVersion":"v1","metadata":{"name":%q,"namespace":"default","annotations":%s},
"spec":{"ports":[{"name":"t","port":%[3]d,"protocol":"TCP"},{"name":"u","port":%[3]d,"protocol":"UDP"}]}}`
	endpointsRecord = `{"kind":"Endpoints","apiVersion":"v1","metadata":{"name":%q,"namespace":"default"},
"subsets":[{"addresses":[{"ip":%q}],"ports":[{"name":"t","port":%[3]d,"protocol":"TCP"},{"name":"u","port":%[3]d,"protocol":"UDP"}]}]}`
	checked = `{"haproxy.org/check":"true","haproxy.org/check-interval":"1s","kube-proxy/check-udp":"x"}`
)

// writeRecords writes the records of all services.
func (b *bench) writeRecords() error {
	dir := b.registry()
	err := errors.Join(writeService(dir, "inkernel", kernelPort, checked), writeService(dir, "inuserspace", userspacePort, "{}"))
	for i := range b.opts.services {
		err = errors.Join(err, writeService(dir, fmt.Sprintf("many-%05d", i), firstMany+i, checked))
	}
	return err
}

func (b *bench) registry() string { return filepath.Join(b.Dir, "records") }

// startProxy starts a build of kube-proxy on the node in place of the one that is there, and waits until the kernel carries what it is to carry.
func (b *bench) startProxy(ctx context.Context, binary string) (err error) {
	if b.serving = ""; b.proxy != nil {
		b.proxy.Stop()
	}
	if b.proxy, err = b.Start("kube-proxy", binary, "-registry_dir="+b.registry(), "-kernel=auto", "-healthz_bind_address=", "-metrics_bind_address="+metricsAddr); err != nil {
		return err
	}
	err = b.proxy.Await(2*time.Minute, func() bool {
		numbers, err := measure.Scrape(ctx, netip.MustParseAddrPort(metricsAddr))
		return err == nil && numbers.Sum("kubeproxy_kernel_ports", "reason", "carried") >= float64(2*(1+b.opts.services))
	})
	if err == nil {
		b.serving = binary
	}
	return err
}

// writeService writes the records of a service whose endpoint is the backend.
func writeService(dir, name string, port int, annotations string) error {
	write := func(kind, text string) error {
		at := filepath.Join(dir, "registry", "services", kind, "default")
		return errors.Join(os.MkdirAll(at, 0o755), os.WriteFile(filepath.Join(at, name), []byte(text), 0o644))
	}
	return errors.Join(
		write("specs", fmt.Sprintf(serviceRecord, name, annotations, port)),
		write("endpoints", fmt.Sprintf(endpointsRecord, name, backendAddr, echoPort)))
}
