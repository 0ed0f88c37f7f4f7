package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"kubeproxy/proxy"
	"kubeproxy/proxy/balance"
)

// leastMaxAge is the least that -config_max_age may be. Etcd gives a sign about every second, but an
// etcd behind a proxy, or one that is busy, may take some.
const leastMaxAge = 10 * time.Second

// A countValue is a flag that holds a number of things, 0 for as many as fit.
type countValue int

func (c *countValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 10, 32)
	switch {
	case err != nil:
		return err
	case n < 0:
		return errors.New("must not be negative")
	}
	*c = countValue(n)
	return nil
}

func (c *countValue) String() string { return strconv.Itoa(int(*c)) }
func (c *countValue) Type() string   { return "number" }

// A placeValue is a flag that holds an IP address with a port to listen on, or nothing. Port 0 is any
// port that is free.
type placeValue netip.AddrPort

func (p *placeValue) Set(s string) error {
	s = strings.TrimSpace(s)
	if s == "" {
		*p = placeValue{}
		return nil
	}
	addr, err := netip.ParseAddrPort(s)
	if err != nil || addr.Addr().Zone() != "" {
		return errors.New("want an IP address with a port, such as 127.0.0.1:10256 or [::1]:10256, or nothing")
	}
	*p = placeValue(netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()))
	return nil
}

func (p *placeValue) String() string {
	if addr := netip.AddrPort(*p); addr.IsValid() {
		return addr.String()
	}
	return ""
}
func (p *placeValue) Type() string { return "address" }

// A portsValue is a flag that holds ports and ranges of ports, each for one namespace (team-a=9000-9999) or for all namespaces that are
// not named. Each use of it adds to the list.
type portsValue struct{ *proxy.Config }

func (p portsValue) Set(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		namespace, ports, named := strings.Cut(item, "=")
		if !named {
			ports = item
		}
		r, err := parseRange(ports)
		if err != nil {
			return err
		}
		if !named {
			p.AllowedPorts = append(p.AllowedPorts, r)
			continue
		}
		if namespace = strings.TrimSpace(namespace); namespace == "" || strings.Contains(namespace, "/") {
			return errors.New("want the name of a namespace before =, such as team-a=9000-9999")
		}
		if p.NamespacePorts == nil {
			p.NamespacePorts = make(map[string][]proxy.PortRange)
		}
		p.NamespacePorts[namespace] = append(p.NamespacePorts[namespace], r)
	}
	return nil
}

func parseRange(s string) (proxy.PortRange, error) {
	first, last, isRange := strings.Cut(strings.TrimSpace(s), "-")
	if !isRange {
		last = first
	}
	from, err := parsePort(first)
	if err != nil {
		return proxy.PortRange{}, err
	}
	to, err := parsePort(last)
	if err != nil {
		return proxy.PortRange{}, err
	}
	if to < from {
		return proxy.PortRange{}, fmt.Errorf("the range %d-%d is the wrong way round", from, to)
	}
	return proxy.PortRange{First: from, Last: to}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(strings.TrimSpace(s), 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("want ports from 1 to %d and ranges of them, such as 80,8000-8999", math.MaxUint16)
	}
	return uint16(n), nil
}

func (p portsValue) String() string {
	var items []string
	list := func(prefix string, ranges []proxy.PortRange) {
		for _, r := range ranges {
			if r.First == r.Last {
				items = append(items, fmt.Sprintf("%s%d", prefix, r.First))
			} else {
				items = append(items, fmt.Sprintf("%s%d-%d", prefix, r.First, r.Last))
			}
		}
	}
	list("", p.AllowedPorts)
	for _, namespace := range slices.Sorted(maps.Keys(p.NamespacePorts)) {
		list(namespace+"=", p.NamespacePorts[namespace])
	}
	return strings.Join(items, ",")
}
func (p portsValue) Type() string { return "ports" }

// A prefixesValue is a flag that holds networks. An address alone is the network of itself. Each use of
// the flag adds to the list.
type prefixesValue []netip.Prefix

func (p *prefixesValue) Set(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		prefix, err := netip.ParsePrefix(item)
		if addr, ip := netip.ParseAddr(item); ip == nil && addr.Zone() == "" {
			prefix, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err != nil || prefix.Addr().Is4In6() {
			return errors.New("want networks, such as 10.0.0.0/8,fd00::/8")
		}
		if prefix != prefix.Masked() { // a slip of the keyboard, most often in the length
			return fmt.Errorf("%v has bits beyond its length; the network is %v", prefix, prefix.Masked())
		}
		*p = append(*p, prefix)
	}
	return nil
}

func (p *prefixesValue) String() string {
	var items []string
	for _, prefix := range *p {
		items = append(items, prefix.String())
	}
	return strings.Join(items, ",")
}
func (p *prefixesValue) Type() string { return "networks" }

// A removalValue is the flag -on_removal.
type removalValue balance.Removal

func (r *removalValue) Set(s string) error {
	after, timed := strings.CutPrefix(s, "close-after=")
	switch {
	case s == "drain":
		*r = removalValue{}
	case s == "close":
		*r = removalValue{Close: true}
	case timed:
		d, err := time.ParseDuration(after)
		if err != nil {
			return err
		}
		if d < 0 {
			return errors.New("must not be negative")
		}
		*r = removalValue{Close: true, After: d}
	default:
		return errors.New("want drain, close or close-after=TIME")
	}
	return nil
}

func (r *removalValue) String() string {
	switch {
	case !r.Close:
		return "drain"
	case r.After == 0:
		return "close"
	}
	return "close-after=" + r.After.String()
}
func (r *removalValue) Type() string { return "rule" }

// limitsContradiction reports limits that contradict each other.
func (o *options) limitsContradiction() error {
	for _, l := range []struct {
		part, whole         int
		partFlag, wholeFlag string
	}{
		{o.proxy.MaxConnectionsPerService, o.proxy.MaxConnections, "-max_connections_per_service", "-max_connections"},
		{o.proxy.MaxUDPSessionsPerService, o.proxy.MaxUDPSessions, "-max_udp_sessions_per_service", "-max_udp_sessions"},
	} {
		if l.whole != 0 && l.part > l.whole {
			return fmt.Errorf("%s (%d) is more than %s (%d)", l.partFlag, l.part, l.wholeFlag, l.whole)
		}
	}
	return nil
}

// operatorsContradiction reports flags about the operators' pages that contradict each other.
func (o *options) operatorsContradiction() error {
	healthz, metrics := o.operators.Healthz.IsValid(), o.operators.Metrics.IsValid()
	switch {
	case !metrics && o.operators.Profiling:
		return errors.New("-profiling means nothing without -metrics_bind_address")
	case !metrics && o.metricsEndpoints:
		return errors.New("-metrics_endpoints means nothing without -metrics_bind_address")
	case !metrics && !healthz && o.configMaxAge != 0:
		return errors.New("-config_max_age means nothing without -healthz_bind_address or -metrics_bind_address")
	}
	return nil
}
