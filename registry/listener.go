package registry

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// ListenAnnotation says at which addresses the ports of a Service are: a list, in which node stands for the node.
const ListenAnnotation = AnnotationPrefix + "listen"

// ParseListen reads the value of [ListenAnnotation]. The zero Addr is the node.
func ParseListen(s string) (addrs []netip.Addr, err error) {
	for text := range strings.SplitSeq(s, ",") {
		var addr netip.Addr
		if text = strings.TrimSpace(text); text != "node" {
			if addr, err = netip.ParseAddr(text); err != nil {
				return nil, fmt.Errorf("%s is no address, and not node", Quote(text))
			}
			if addr, err = addr.Unmap(), CheckListen(addr); err != nil {
				return nil, fmt.Errorf("%s: %w", Quote(text), err)
			}
		}
		if slices.Contains(addrs, addr) {
			return nil, fmt.Errorf("%s is listed twice", Quote(text))
		}
		addrs = append(addrs, addr)
	}
	return addrs, nil
}

// CheckListen reports why no service can have an address of its own; nil: one can.
func CheckListen(addr netip.Addr) error {
	if addr.Zone() != "" || addr.IsLinkLocalUnicast() && addr.Unmap().Is6() {
		return errors.New("an address that is link-local, or has a zone, is another one on each node")
	}
	return CheckUnicast(addr)
}

// A ListenerID names what can be listened on: one port of one protocol, at one address. It is what services claim, and by what all that
// speaks of a listener knows it.
type ListenerID struct {
	Addr     netip.Addr // the zero Addr: the node, which is where -bind_address says
	Protocol Protocol
	Number   uint16
}

// String names the listener as the logs do.
func (id ListenerID) String() string {
	if id.Addr.IsValid() {
		return fmt.Sprintf("%s port %d of %s", id.Protocol, id.Number, id.Addr)
	}
	return fmt.Sprintf("%s port %d", id.Protocol, id.Number)
}

// Compare orders listeners by number, then by protocol, then by address, the node first.
func (id ListenerID) Compare(other ListenerID) int {
	return cmp.Or(cmp.Compare(id.Number, other.Number), cmp.Compare(id.Protocol, other.Protocol), id.Addr.Compare(other.Addr))
}

// AtNode is the listener of the same port at the node.
func (id ListenerID) AtNode() ListenerID {
	id.Addr = netip.Addr{}
	return id
}

// Short names the listener where there is little room: "tcp 80", or "tcp 127.0.0.2:80".
func (id ListenerID) Short() string {
	if id.Addr.IsValid() {
		return fmt.Sprintf("%s %s", id.Protocol, netip.AddrPortFrom(id.Addr, id.Number))
	}
	return fmt.Sprintf("%s %d", id.Protocol, id.Number)
}

// Address is that of the listener as text; "" for the node.
func (id ListenerID) Address() string {
	if !id.Addr.IsValid() {
		return ""
	}
	return id.Addr.String()
}
