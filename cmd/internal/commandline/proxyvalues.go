package commandline

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"kubeproxy/proxy"
	"kubeproxy/proxy/removal"
	"kubeproxy/registry"
)

// Flags that only the proxy has: a list of ports, and what its names of rules, engines and algorithms stand for. One with few values lists
// them by Choices.

// Ports is a flag that holds ports and ranges of ports, each for one namespace (team-a=9000-9999) or for all namespaces that are
// not named. Each use of it adds to the list.
type Ports struct{ *proxy.Config }

func (p Ports) Set(s string) error {
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

func (p Ports) String() string {
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
func (p Ports) Type() string { return "ports" }

// IsList says that the flag may have several values.
func (p Ports) IsList() {}

// Removal is the flag -on_removal.
type Removal removal.Policy

func (r *Removal) Set(s string) error {
	said, err := registry.ParseRemoval(s)
	if err == nil {
		*r = Removal(removal.PolicyOf(said, removal.Policy{}))
	}
	return err
}

func (r *Removal) String() string {
	switch {
	case !r.Close:
		return "drain"
	case r.After == 0:
		return "close"
	}
	return "close-after=" + r.After.String()
}
func (r *Removal) Type() string { return "rule" }

// Choices returns the rules. The last one needs a time.
func (r *Removal) Choices() []string { return []string{"drain", "close", "close-after="} }

// Engine is the flag -engine.
type Engine proxy.Kind

func (e *Engine) Set(s string) error {
	kind, err := proxy.ParseKind(s)
	if err == nil {
		*e = Engine(kind)
	}
	return err
}

func (e *Engine) String() string    { return proxy.Kind(*e).String() }
func (e *Engine) Type() string      { return "engine" }
func (e *Engine) Choices() []string { return proxy.KindNames() }

// Kernel is the flag -kernel.
type Kernel bool

func (k *Kernel) Set(s string) error {
	if !slices.Contains(k.Choices(), s) {
		return fmt.Errorf("there are %s", strings.Join(k.Choices(), " and "))
	}
	*k = s == "auto"
	return nil
}

func (k *Kernel) String() string {
	if *k {
		return "auto"
	}
	return "off"
}

func (k *Kernel) Type() string      { return "mode" }
func (k *Kernel) Choices() []string { return []string{"off", "auto"} }

// Balance is the flag -load_balance.
type Balance registry.Balance

func (b *Balance) Set(s string) error {
	v, err := registry.ParseBalance(s)
	if err == nil {
		*b = Balance(v)
	}
	return err
}

func (b *Balance) String() string { return registry.Balance(*b).String() }
func (b *Balance) Type() string   { return "algorithm" }

// Choices returns the algorithms.
func (b *Balance) Choices() []string {
	var names []string
	for _, v := range registry.Balances() {
		names = append(names, v.String())
	}
	return names
}

// PlaceName is a flag that holds the name of a node or a zone; empty: it is not known.
type PlaceName string

func (p *PlaceName) Set(s string) error {
	if s != "" {
		if err := registry.CheckZone(s); err != nil {
			return err
		}
	}
	*p = PlaceName(s)
	return nil
}

func (p *PlaceName) String() string { return string(*p) }
func (p *PlaceName) Type() string   { return "name" }
