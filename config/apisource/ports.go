package apisource

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// LocalPorts returns the TCP port of the server if its URL names this machine by an address, or as localhost. No service may have
// that port: a server that restarts would find it taken.
func (s *Source) LocalPorts(context.Context) []uint16 {
	u, err := url.Parse(s.cfg.Server)
	if err != nil || !isLocal(strings.ToLower(u.Hostname())) {
		return nil
	}
	text := u.Port()
	if text == "" {
		text = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil
	}
	return []uint16{uint16(port)}
}

func isLocal(host string) bool {
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return host == "localhost"
	}
	ip = ip.Unmap().WithZone("")
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	addrs, err := net.InterfaceAddrs()
	return err == nil && slices.ContainsFunc(addrs, func(a net.Addr) bool {
		prefix, err := netip.ParsePrefix(a.String())
		return err == nil && prefix.Addr().Unmap().WithZone("") == ip
	})
}
