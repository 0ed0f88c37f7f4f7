package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"kubeproxy/registry"
)

// Messages that package nftables does not know: a table with an owner, and counters of single elements.

// Of the uapi of the kernel (nf_tables.h).
const tableFlagOwner = 0x2 // since 5.12

func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// message makes a message of a subsystem of netfilter.
func message(kind int, flags netlink.HeaderFlags, family byte, resource uint16, attributes []byte) netlink.Message {
	header := []byte{family, 0, byte(resource >> 8), byte(resource)}
	return netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: append(header, attributes...)}
}

func nftMessage(kind int, flags netlink.HeaderFlags, attributes []byte) netlink.Message {
	return message(unix.NFNL_SUBSYS_NFTABLES<<8|kind, flags, unix.NFPROTO_INET, 0, attributes)
}

func name(s string) []byte { return append([]byte(s), 0) }

// createOwned creates a table that belongs to a socket: the kernel deletes it with the socket, and lets no other socket change it.
func createOwned(conn *netlink.Conn, table string) error {
	attributes, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_TABLE_NAME, Data: name(table)},
		{Type: unix.NFTA_TABLE_FLAGS, Data: binary.BigEndian.AppendUint32(nil, tableFlagOwner)},
	})
	if err != nil {
		return err
	}
	err = transact(conn, nftMessage(unix.NFT_MSG_NEWTABLE, netlink.Create|netlink.Excl, attributes))
	if errors.Is(err, syscall.EOPNOTSUPP) || errors.Is(err, syscall.EINVAL) {
		return errors.New("create table: this kernel has no tables with an owner, which came with Linux 5.12")
	}
	if err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	return nil
}

// transact makes a transaction of one message.
func transact(conn *netlink.Conn, m netlink.Message) error {
	m.Header.Flags |= netlink.Acknowledge
	if _, err := conn.SendMessages([]netlink.Message{
		message(unix.NFNL_MSG_BATCH_BEGIN, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil),
		m,
		message(unix.NFNL_MSG_BATCH_END, 0, 0, unix.NFNL_SUBSYS_NFTABLES, nil),
	}); err != nil {
		return err
	}
	_, err := conn.Receive()
	return err
}

// readCounters adds the packets of elements of a map of ports to counts; no ids: of all elements.
func readCounters(conn *netlink.Conn, table, set string, ids []registry.ListenerID, counts map[registry.ListenerID]uint64) error {
	e := netlink.NewAttributeEncoder()
	e.Bytes(unix.NFTA_SET_ELEM_LIST_TABLE, name(table))
	e.Bytes(unix.NFTA_SET_ELEM_LIST_SET, name(set))
	flags, answers := netlink.Dump, 1
	if ids != nil {
		flags, answers = 0, len(ids)
		e.Nested(unix.NFTA_SET_ELEM_LIST_ELEMENTS, func(list *netlink.AttributeEncoder) error {
			for _, id := range ids {
				list.Nested(unix.NFTA_LIST_ELEM, func(element *netlink.AttributeEncoder) error {
					element.Nested(unix.NFTA_SET_ELEM_KEY, func(key *netlink.AttributeEncoder) error {
						key.Bytes(unix.NFTA_DATA_VALUE, portKey(id))
						return nil
					})
					return nil
				})
			}
			return nil
		})
	}
	attributes, err := e.Encode()
	if err != nil {
		return err
	}
	if _, err := conn.Send(nftMessage(unix.NFT_MSG_GETSETELEM, flags, attributes)); err != nil {
		return fmt.Errorf("read counters: %w", err)
	}
	for range answers { // one for each element that was asked for
		messages, err := conn.Receive()
		if err != nil {
			return fmt.Errorf("read counters: %w", err)
		}
		for _, m := range messages {
			if err := decodeCounters(m.Data, counts); err != nil {
				return fmt.Errorf("read counters: %w", err)
			}
		}
	}
	return nil
}

// decodeCounters adds the packets of the elements of a message to counts.
func decodeCounters(data []byte, counts map[registry.ListenerID]uint64) error {
	if len(data) < 4 {
		return errors.New("the answer is too short")
	}
	d, err := netlink.NewAttributeDecoder(data[4:])
	if err != nil {
		return err
	}
	for d.ByteOrder = binary.BigEndian; d.Next(); {
		if d.Type() == unix.NFTA_SET_ELEM_LIST_ELEMENTS {
			fields(d, func(element *netlink.AttributeDecoder) { decodeCounter(element, counts) })
		}
	}
	return d.Err()
}

// fields calls each for the attributes that one has.
func fields(of *netlink.AttributeDecoder, each func(*netlink.AttributeDecoder)) {
	of.Nested(func(d *netlink.AttributeDecoder) error {
		for d.Next() {
			each(d)
		}
		return nil
	})
}

// decodeCounter adds the packets of one element to counts.
func decodeCounter(element *netlink.AttributeDecoder, counts map[registry.ListenerID]uint64) {
	var key []byte
	var packets uint64
	fields(element, func(d *netlink.AttributeDecoder) {
		switch d.Type() {
		case unix.NFTA_SET_ELEM_KEY:
			fields(d, func(value *netlink.AttributeDecoder) { key = value.Bytes() })
		case unix.NFTA_SET_ELEM_EXPR:
			fields(d, func(expr *netlink.AttributeDecoder) {
				if expr.Type() == unix.NFTA_EXPR_DATA {
					fields(expr, func(counter *netlink.AttributeDecoder) {
						if counter.Type() == unix.NFTA_COUNTER_PACKETS {
							packets = counter.Uint64()
						}
					})
				}
			})
		}
	})
	if id, ok := portOf(key); ok {
		counts[id] += packets
	}
}
