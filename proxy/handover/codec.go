package handover

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"kubeproxy/registry"
)

// A codec writes the fields of a message one after the other, or reads them in the same order. Each message describes its fields
// once, for both directions, so that the two cannot disagree.
//
// Numbers are varints, everything else follows its length. At the end of a message that is read, fields are left as they are.
type codec struct {
	b       []byte // written so far; or still to be read
	decodes bool
	err     error // the first; after it fields are left as they are
}

var errCut = errors.New("the message is cut off")

// fits is how a number of another type is read: false means that it was out of range.
func (c *codec) fits(ok bool) bool {
	if !ok && c.err == nil {
		c.err = errors.New("a number is out of range")
	}
	return ok
}

// done reports whether there is nothing left to read.
func (c *codec) done() bool { return c.decodes && (len(c.b) == 0 || c.err != nil) }

func (c *codec) uint(v *uint64) {
	switch {
	case !c.decodes:
		c.b = binary.AppendUvarint(c.b, *v)
	case !c.done():
		n, size := binary.Uvarint(c.b)
		if size <= 0 {
			c.err = errCut
			return
		}
		*v, c.b = n, c.b[size:]
	}
}

func (c *codec) int(v *int64) {
	zigzag := uint64(*v<<1) ^ uint64(*v>>63)
	c.uint(&zigzag)
	*v = int64(zigzag>>1) ^ -int64(zigzag&1)
}

func (c *codec) duration(v *time.Duration) { c.int((*int64)(v)) }

func (c *codec) uint16(v *uint16) {
	n := uint64(*v)
	if c.uint(&n); c.fits(n < 1<<16) {
		*v = uint16(n)
	}
}

func (c *codec) uint32(v *uint32) {
	n := uint64(*v)
	if c.uint(&n); c.fits(n < 1<<32) {
		*v = uint32(n)
	}
}

func (c *codec) bool(v *bool) {
	var n uint64
	if *v {
		n = 1
	}
	if c.uint(&n); c.fits(n < 2) {
		*v = n == 1
	}
}

// bytes reads a slice of the message, without a copy.
func (c *codec) bytes(v *[]byte) {
	n := uint64(len(*v))
	if c.uint(&n); !c.decodes {
		c.b = append(c.b, *v...)
		return
	}
	if c.err == nil && n > uint64(len(c.b)) {
		c.err = errCut
	}
	if c.err == nil && n > 0 {
		*v, c.b = c.b[:n:n], c.b[n:]
	}
}

func (c *codec) text(v *string) {
	if !c.decodes {
		n := uint64(len(*v))
		c.uint(&n)
		c.b = append(c.b, *v...)
		return
	}
	var b []byte
	c.bytes(&b)
	*v = string(b)
}

// list describes a list. Each element is a message of its own, so that it may get more fields one day.
func list[T any](c *codec, v *[]T, fields func(*codec, *T)) {
	n := uint64(len(*v))
	if c.uint(&n); c.decodes {
		if n > uint64(len(c.b)) { // each takes a byte at least
			c.err = errCut
			return
		}
		*v = nil
		for range n {
			var body []byte
			c.bytes(&body)
			element := codec{b: body, decodes: true}
			var e T
			if fields(&element, &e); c.err == nil {
				c.err = element.err
			}
			if c.err != nil {
				return
			}
			*v = append(*v, e)
		}
		return
	}
	for i := range *v {
		var element codec
		fields(&element, &(*v)[i])
		c.bytes(&element.b)
	}
}

func (c *codec) protocol(v *registry.Protocol) {
	n := uint64(*v)
	if c.uint(&n); c.fits(n == uint64(registry.TCP) || n == uint64(registry.UDP)) {
		*v = registry.Protocol(n)
	}
}

func (c *codec) portKey(v *registry.PortKey) {
	c.text(&v.Namespace)
	c.text(&v.Name.Name)
	c.text(&v.Port)
}

// ip describes an address by its bytes, and its zone if it has one.
func (c *codec) ip(v *netip.Addr) {
	b := v.WithZone("").AsSlice()
	zone := v.Zone()
	c.bytes(&b)
	c.text(&zone)
	if !c.decodes || c.err != nil {
		return
	}
	ip, ok := netip.AddrFromSlice(b)
	if !ok && len(b) > 0 || zone != "" && !ip.Is6() {
		c.err = errors.New("that is no IP address")
		return
	}
	*v = ip.WithZone(zone)
}

func (c *codec) addrPort(v *netip.AddrPort) {
	ip, port := v.Addr(), v.Port()
	c.ip(&ip)
	c.uint16(&port)
	*v = netip.AddrPortFrom(ip, port)
}

// removal describes what a service says of removals.
func (c *codec) removal(v *registry.Removal) {
	rule := uint64(v.Rule)
	if c.uint(&rule); c.fits(rule <= uint64(registry.RemovalClose)) {
		v.Rule = registry.RemovalRule(rule)
	}
	c.duration(&v.After)
}

func (c *codec) endpoint(v *registry.Addr) {
	c.addrPort(&v.IP)
	c.text(&v.Host)
}
