package main

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"kubeproxy/proxy"
	"kubeproxy/registry"
)

// An addressValue is a flag that holds an IP address, by v0.4's rules: blanks around it are
// trimmed, and nothing but a whole numeric address will do.
type addressValue netip.Addr

func (a *addressValue) Set(s string) error {
	ip, err := netip.ParseAddr(strings.TrimSpace(s))
	if err != nil || ip.Zone() != "" {
		return fmt.Errorf("invalid IP address: '%s'", s)
	}
	*a = addressValue(ip.Unmap())
	return nil
}

func (a *addressValue) String() string {
	if !netip.Addr(*a).IsValid() {
		return "" // not given
	}
	return netip.Addr(*a).String()
}

func (a *addressValue) Type() string { return "ip" }

// A listValue is a flag that holds a list: values are split at commas, and each use of the flag
// adds to it. Blanks are trimmed. v0.4 kept those of "http://a:1, http://b:1", and the second
// address never worked.
type listValue []string

func (l *listValue) Set(s string) error {
	for item := range strings.SplitSeq(s, ",") {
		if item = strings.TrimSpace(item); item == "" {
			return errors.New("value should not be an empty string")
		}
		*l = append(*l, item)
	}
	return nil
}

func (l *listValue) String() string { return strings.Join(*l, ",") }
func (l *listValue) Type() string   { return "list" }

// A durationValue is a flag that sets a time span, which is never negative.
type durationValue struct {
	*time.Duration
	zero  bool          // zero is allowed
	least time.Duration // of other values
}

// positive is a flag that sets d to more than zero.
func positive(d *time.Duration) durationValue { return durationValue{Duration: d} }

// atLeast is a flag that sets d to least or more.
func atLeast(least time.Duration, d *time.Duration) durationValue {
	return durationValue{Duration: d, least: least}
}

// zeroOr is a flag that sets d to zero, or to least or more.
func zeroOr(least time.Duration, d *time.Duration) durationValue {
	return durationValue{Duration: d, zero: true, least: least}
}

func (d durationValue) Set(s string) error {
	v, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return err
	case v < 0:
		return errors.New("must not be negative")
	case v == 0 && !d.zero:
		return errors.New("must be more than zero")
	case v != 0 && v < d.least:
		return fmt.Errorf("must be at least %v", d.least)
	}
	*d.Duration = v
	return nil
}

func (d durationValue) Type() string { return "duration" }

// A versionValue is the flag -version: a boolean that may also be "raw".
type versionValue uint8

const (
	versionOff versionValue = iota
	versionShort
	versionRaw
)

func (v *versionValue) Set(s string) error {
	if s == "raw" {
		*v = versionRaw
		return nil
	}
	on, err := strconv.ParseBool(s)
	switch {
	case err != nil:
		return err
	case on:
		*v = versionShort
	default:
		*v = versionOff
	}
	return nil
}

func (v *versionValue) String() string { return [...]string{"false", "true", "raw"}[*v] }
func (v *versionValue) Type() string   { return "bool" }

// A helpValue is the flag -help. Set gives [pflag.ErrHelp], which ends the parsing right there.
type helpValue struct{}

func (helpValue) Set(string) error { return pflag.ErrHelp }
func (helpValue) String() string   { return "false" }
func (helpValue) Type() string     { return "bool" }

// A servicePortValue is the flag -service_port: whether services offer their nodePorts.
type servicePortValue bool

func (v *servicePortValue) Set(s string) error {
	switch s {
	case "port":
		*v = false
	case "nodePort":
		*v = true
	default:
		return errors.New("must be port or nodePort")
	}
	return nil
}

func (v *servicePortValue) String() string {
	if *v {
		return "nodePort"
	}
	return "port"
}

func (v *servicePortValue) Type() string { return "port" }

// An engineValue is the flag -engine.
type engineValue proxy.Kind

func (e *engineValue) Set(s string) error {
	kind, err := proxy.ParseKind(s)
	if err == nil {
		*e = engineValue(kind)
	}
	return err
}

func (e *engineValue) String() string { return proxy.Kind(*e).String() }
func (e *engineValue) Type() string   { return "engine" }

// A balanceValue is the flag -load_balance.
type balanceValue registry.Balance

func (b *balanceValue) Set(s string) error {
	v, err := registry.ParseBalance(s)
	if err == nil {
		*b = balanceValue(v)
	}
	return err
}

func (b *balanceValue) String() string { return registry.Balance(*b).String() }
func (b *balanceValue) Type() string   { return "algorithm" }
