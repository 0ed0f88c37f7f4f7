package etcdconfig

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golang/glog"
)

// lookupFor bounds how long the names in the URLs of etcd are looked up before the proxy starts.
const lookupFor = time.Second

// LocalPorts returns the TCP ports of those members of etcd that run on this machine, by their URLs. No service may have such a port:
// an etcd that restarts would find it taken. A name that cannot be looked up within a second counts as one of this machine.
func (c *Config) LocalPorts(ctx context.Context) []uint16 {
	return localPorts(ctx, c.Endpoints, net.DefaultResolver.LookupNetIP, machineAddrs())
}

func localPorts(ctx context.Context, urls []string, lookup func(ctx context.Context, network, host string) ([]netip.Addr, error), machine []netip.Addr) []uint16 {
	ctx, cancel := context.WithTimeout(ctx, lookupFor)
	defer cancel()
	isLocal := func(a netip.Addr) bool {
		a = a.Unmap().WithZone("")
		return a.IsLoopback() || a.IsUnspecified() || slices.Contains(machine, a)
	}
	local := make([]bool, len(urls))
	ports := make([]uint16, len(urls))
	var lookups sync.WaitGroup
	for i, text := range urls {
		u, port, err := parseMember(text)
		if err != nil {
			continue
		}
		ports[i] = port
		host := strings.TrimSuffix(strings.ToLower(u.Hostname()), ".")
		if ip, err := netip.ParseAddr(host); err == nil {
			local[i] = isLocal(ip)
			continue
		}
		if isNameOfThisMachine(host) {
			local[i] = true
			continue
		}
		lookups.Go(func() {
			addrs, err := lookup(ctx, "ip", host)
			if err != nil {
				glog.Warningf("cannot tell whether the etcd at %s is on this machine, so no service may have tcp port %d here: %v", u.Redacted(), port, err)
			}
			local[i] = err != nil || slices.ContainsFunc(addrs, isLocal)
		})
	}
	lookups.Wait()
	var reserved []uint16
	for i, port := range ports {
		if local[i] && !slices.Contains(reserved, port) {
			reserved = append(reserved, port)
		}
	}
	return reserved
}

// parseMember reads the URL of a member, whose scheme may be left out, and its port.
func parseMember(text string) (*url.URL, uint16, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return nil, 0, err
	}
	port, err := strconv.ParseUint(u.Port(), 10, 16)
	return u, uint16(port), err
}

func isNameOfThisMachine(host string) bool {
	own, _ := os.Hostname() // or none, which no host is called
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.EqualFold(host, own)
}

// machineAddrs lists the addresses of the interfaces of this machine.
func machineAddrs() (ips []netip.Addr) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range addrs {
		if prefix, err := netip.ParsePrefix(a.String()); err == nil {
			ips = append(ips, prefix.Addr().Unmap().WithZone(""))
		}
	}
	return ips
}
