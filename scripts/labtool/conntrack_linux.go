package main

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kubeproxy/scripts/internal/try"
)

// Of the uapi of the kernel (nfnetlink_conntrack.h).
const (
	ctGet = unix.NFNL_SUBSYS_CTNETLINK<<8 | 1

	ctTupleOrig, ctTupleReply       = 1, 2
	ctTupleIP, ctTupleProto         = 1, 2
	ctProtoNum                      = 1
	ctProtoSource, ctProtoDest      = 2, 3
	ctIPv4Source, ctIPv4Destination = 1, 2
)

// A tuple is the packets of a connection in one direction.
type tuple struct {
	protocol             uint8
	source, destination  netip.Addr
	sourcePort, destPort uint16
}

func (t tuple) String() string {
	return fmt.Sprintf("src=%s dst=%s sport=%d dport=%d", t.source, t.destination, t.sourcePort, t.destPort)
}

// runConntrack prints the TCP and UDP connections over IPv4 that the kernel keeps track of: for each the packets of who began it, and those
// that it expects as answers, in the words of conntrack -L.
func runConntrack(args []string) (err error) {
	defer try.Catch(&err)
	if len(args) != 0 {
		return errUsage
	}
	conn := try.Get(netlink.Dial(unix.NETLINK_NETFILTER, nil))
	defer conn.Close()
	messages := try.Get(conn.Execute(netlink.Message{
		Header: netlink.Header{Type: ctGet, Flags: netlink.Request | netlink.Dump},
		Data:   []byte{unix.AF_INET, 0, 0, 0},
	}))
	var lines []string
	for _, m := range messages {
		original, reply, err := readTuples(m.Data[min(4, len(m.Data)):])
		try.Do(err)
		switch original.protocol {
		case unix.IPPROTO_TCP:
			lines = append(lines, fmt.Sprintf("tcp %v %v", original, reply))
		case unix.IPPROTO_UDP:
			lines = append(lines, fmt.Sprintf("udp %v %v", original, reply))
		}
	}
	slices.Sort(lines)
	for _, line := range lines {
		fmt.Println(line)
	}
	return nil
}

// readTuples reads both directions of an entry of the connection table.
func readTuples(attributes []byte) (original, reply tuple, err error) {
	d, err := netlink.NewAttributeDecoder(attributes)
	if err != nil {
		return original, reply, err
	}
	for d.ByteOrder = binary.BigEndian; d.Next(); {
		switch d.Type() {
		case ctTupleOrig:
			d.Nested(original.read)
		case ctTupleReply:
			d.Nested(reply.read)
		}
	}
	return original, reply, d.Err()
}

func (t *tuple) read(d *netlink.AttributeDecoder) error {
	for d.Next() {
		switch d.Type() {
		case ctTupleIP:
			d.Nested(func(ip *netlink.AttributeDecoder) error {
				for ip.Next() {
					switch ip.Type() {
					case ctIPv4Source:
						t.source, _ = netip.AddrFromSlice(ip.Bytes()) // it has four bytes
					case ctIPv4Destination:
						t.destination, _ = netip.AddrFromSlice(ip.Bytes())
					}
				}
				return nil
			})
		case ctTupleProto:
			d.Nested(func(p *netlink.AttributeDecoder) error {
				for p.Next() {
					switch p.Type() {
					case ctProtoNum:
						t.protocol = p.Uint8()
					case ctProtoSource:
						t.sourcePort = p.Uint16()
					case ctProtoDest:
						t.destPort = p.Uint16()
					}
				}
				return nil
			})
		}
	}
	return nil
}
