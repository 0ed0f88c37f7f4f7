package kernel

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kubeproxy/registry"
)

// Messages for the connection table.

// Of the uapi of the kernel (nfnetlink_conntrack.h).
const (
	ctGet    = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1
	ctDelete = unix.NFNL_SUBSYS_CTNETLINK<<8 | 2

	ctTupleOrig, ctTupleReply = 1, 2
	ctTupleIP, ctTupleProto   = 1, 2
	ctIPv4Source, ctIPv4Dst   = 1, 2
	ctIPv6Source, ctIPv6Dst   = 3, 4
	ctProtoNum                = 1
	ctProtoSource, ctProtoDst = 2, 3

	ctStatus, ctStatusMask = 3, 26
	ctID, ctZone           = 12, 18

	ctFilter                           = 25
	ctFilterOrigFlags, ctFilterReply   = 1, 2
	filterSource, filterTarget         = 1 << 0, 1 << 1
	filterProtocol                     = 1 << 3
	filterSourcePort, filterTargetPort = 1 << 4, 1 << 5
)

// typeMask has the bits of the type of an attribute that are not flags.
const typeMask = 0x3fff

// deleteFlows deletes the UDP flows of a port to an endpoint from the connection table. For a port of the node it deletes those of the same port of
// addresses, too, if they have the same endpoint: their next datagrams find one.
//
// Over IPv4 that is one message: the kernel looks for them. Linux 6.12 does; 6.6 takes such a filter for a list alone. Over IPv6 a filter cannot have an
// address: what Linux 6.18 deletes and lists by it is the flows with any other address.
func deleteFlows(id registry.ListenerID, endpoint netip.AddrPort) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	return deleteBy(conn, flow{id, endpoint})
}

func deleteBy(conn *netlink.Conn, of flow) error {
	family, filter, err := filterFlows(of)
	if err != nil {
		return err
	}
	if family == unix.NFPROTO_IPV4 {
		_, err := conn.Execute(message(ctDelete, netlink.Acknowledge, family, 0, filter))
		if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EOPNOTSUPP) {
			return err
		}
	}
	return deleteEach(conn, of, family, filter)
}

// deleteEach deletes flows one by one, of what the kernel lists for a filter.
func deleteEach(conn *netlink.Conn, of flow, family byte, filter []byte) error {
	var failed error
	err := dump(family, filter, func(e *entry) {
		if !e.belongs(of) {
			return
		}
		name, err := netlink.MarshalAttributes(e.name)
		if err == nil {
			_, err = conn.Execute(message(ctDelete, netlink.Acknowledge, family, 0, name))
		}
		if !errors.Is(err, syscall.ENOENT) { // or it has just expired
			failed = cmp.Or(failed, err)
		}
	})
	return cmp.Or(err, failed)
}

// filterFlows makes the attributes that name the UDP flows of a port to an endpoint; over IPv6 those of other endpoints with the same port, too.
func filterFlows(of flow) (family byte, attributes []byte, err error) {
	id, endpoint := of.id, of.endpoint
	original, reply := uint32(filterProtocol|filterTargetPort), uint32(filterProtocol|filterSourcePort)
	if family = unix.NFPROTO_IPV6; endpoint.Addr().Is4() {
		family = unix.NFPROTO_IPV4
		if reply |= filterSource; id.Addr.IsValid() {
			original |= filterTarget
		}
	}
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	tuple := func(direction, ipField uint16, addr netip.Addr, hasAddr bool, portField, port uint16) {
		e.Nested(direction, func(tuple *netlink.AttributeEncoder) error {
			if hasAddr {
				tuple.Nested(ctTupleIP, func(ip *netlink.AttributeEncoder) error {
					ip.Bytes(ipField, addr.AsSlice())
					return nil
				})
			}
			tuple.Nested(ctTupleProto, func(p *netlink.AttributeEncoder) error {
				p.Uint8(ctProtoNum, unix.IPPROTO_UDP)
				p.Uint16(portField, port)
				return nil
			})
			return nil
		})
	}
	tuple(ctTupleOrig, ctIPv4Dst, id.Addr, original&filterTarget != 0, ctProtoDst, id.Number)
	tuple(ctTupleReply, ctIPv4Source, endpoint.Addr(), reply&filterSource != 0, ctProtoSource, endpoint.Port())
	e.Nested(ctFilter, func(f *netlink.AttributeEncoder) error {
		f.Bytes(ctFilterOrigFlags, native(original))
		f.Bytes(ctFilterReply, native(reply))
		return nil
	})
	attributes, err = e.Encode()
	return family, attributes, err
}

// listFlows returns the UDP flows that some rule of destination NAT has sent elsewhere, once for each address, port and endpoint, and maxEarlier of
// them at most. Whose rule it was the kernel does not say.
func listFlows() ([]flow, error) {
	e := netlink.NewAttributeEncoder()
	e.ByteOrder = binary.BigEndian
	e.Nested(ctTupleOrig, func(tuple *netlink.AttributeEncoder) error {
		tuple.Nested(ctTupleProto, func(p *netlink.AttributeEncoder) error {
			p.Uint8(ctProtoNum, unix.IPPROTO_UDP)
			return nil
		})
		return nil
	})
	e.Nested(ctFilter, func(f *netlink.AttributeEncoder) error {
		f.Bytes(ctFilterOrigFlags, native(filterProtocol))
		return nil
	})
	e.Uint32(ctStatus, ctStatusDNAT) // old kernels do not read these two, and list flows without NAT, too
	e.Uint32(ctStatusMask, ctStatusDNAT)
	filter, err := e.Encode()
	if err != nil {
		return nil, err
	}
	found := make(map[flow]struct{})
	for _, a := range addressing {
		err := dump(a.protocol, filter, func(e *entry) {
			if e.isSentElsewhere() && len(found) < maxEarlier {
				id := registry.ListenerID{Protocol: registry.UDP, Addr: e.target.Addr(), Number: e.target.Port()}
				found[flow{id, e.endpoint}] = struct{}{}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return slices.Collect(maps.Keys(found)), nil
}

// dump calls each with all entries of the connection table that a filter names. It holds a few of them at a time: package netlink would hold
// all, which may be some 100,000.
func dump(family byte, filter []byte, each func(*entry)) error {
	conn, err := netlink.Dial(unix.NETLINK_NETFILTER, nil)
	if err != nil {
		return err
	}
	defer conn.Close()
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	if _, err := conn.Send(message(ctGet, netlink.Dump, family, 0, filter)); err != nil {
		return err
	}
	for buf := make([]byte, 1<<16); ; { // the kernel fills 32 KiB at most
		var n int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			n, failed = unix.Read(int(fd), buf)
			return failed != unix.EAGAIN
		})
		if err = cmp.Or(err, failed); err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return fmt.Errorf("list connections: %w", err)
		}
		for _, m := range messages {
			if m.Header.Type == unix.NLMSG_DONE || m.Header.Type == unix.NLMSG_ERROR {
				if len(m.Data) >= 4 {
					if errno := int32(binary.NativeEndian.Uint32(m.Data)); errno != 0 {
						return fmt.Errorf("list connections: %w", syscall.Errno(-errno))
					}
				}
				return nil
			}
			e, err := decodeEntry(m.Data)
			if err != nil {
				return fmt.Errorf("list connections: %w", err)
			}
			each(&e)
		}
	}
}

// An entry is one of the connection table.
type entry struct {
	name             []netlink.Attribute // by which a message names this entry and no other
	protocol         byte
	status           uint32
	target, endpoint netip.AddrPort // to which its client sends, and from which the replies come
}

// belongs reports whether an entry is one of the flows of a port to an endpoint.
func (e *entry) belongs(to flow) bool {
	return e.protocol == unix.IPPROTO_UDP && e.target.Port() == to.id.Number && e.endpoint == to.endpoint &&
		(!to.id.Addr.IsValid() || e.target.Addr() == to.id.Addr)
}

// isSentElsewhere reports whether an entry is a UDP flow that destination NAT has sent to its endpoint.
func (e *entry) isSentElsewhere() bool {
	return e.protocol == unix.IPPROTO_UDP && e.status&ctStatusDNAT != 0
}

func decodeEntry(data []byte) (e entry, err error) {
	if len(data) < 4 {
		return e, errors.New("the answer is too short")
	}
	attributes, err := netlink.UnmarshalAttributes(data[4:])
	if err != nil {
		return e, err
	}
	for _, a := range attributes {
		switch a.Type & typeMask {
		case ctTupleOrig:
			e.name = append(e.name, a)
			_, e.target, e.protocol, err = decodeTuple(a.Data)
		case ctTupleReply:
			e.endpoint, _, _, err = decodeTuple(a.Data)
		case ctID, ctZone:
			e.name = append(e.name, a)
		case ctStatus:
			if len(a.Data) == 4 {
				e.status = binary.BigEndian.Uint32(a.Data)
			}
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}

// decodeTuple reads a direction of an entry.
func decodeTuple(data []byte) (source, target netip.AddrPort, protocol byte, err error) {
	var from, to netip.Addr
	var fromPort, toPort uint16
	d, err := netlink.NewAttributeDecoder(data)
	if err != nil {
		return source, target, 0, err
	}
	for d.ByteOrder = binary.BigEndian; d.Next(); {
		fields(d, func(field *netlink.AttributeDecoder) {
			switch of, is := d.Type(), field.Type(); {
			case of == ctTupleIP && (is == ctIPv4Source || is == ctIPv6Source):
				from, _ = netip.AddrFromSlice(field.Bytes())
			case of == ctTupleIP && (is == ctIPv4Dst || is == ctIPv6Dst):
				to, _ = netip.AddrFromSlice(field.Bytes())
			case of == ctTupleProto && is == ctProtoNum:
				protocol = field.Uint8()
			case of == ctTupleProto && is == ctProtoSource:
				fromPort = field.Uint16()
			case of == ctTupleProto && is == ctProtoDst:
				toPort = field.Uint16()
			}
		})
	}
	return netip.AddrPortFrom(from, fromPort), netip.AddrPortFrom(to, toPort), protocol, d.Err()
}
