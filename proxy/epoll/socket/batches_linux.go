package socket

import (
	"net/netip"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/udp"
)

// How many datagrams are read from a socket at once at most, and how many replies are collected before they are sent.
const (
	DatagramBatch = 64
	ReplyBatch    = 64
)

// A ReceiveBatch is room for a batch of datagrams, their senders, and which of our addresses they were
// sent to.
type ReceiveBatch struct {
	headers [DatagramBatch]mmsghdr
	vectors [DatagramBatch]unix.Iovec
	senders [DatagramBatch]unix.RawSockaddrAny
	control [DatagramBatch][128]byte // no less than ReceiptSpace
	data    [DatagramBatch]udp.DatagramBuffer
}

// NewReceiveBatch makes one. What of it no datagram has touched takes no memory.
func NewReceiveBatch() *ReceiveBatch {
	in := new(ReceiveBatch)
	for i := range in.headers {
		in.vectors[i].Base = &in.data[i][0]
		in.vectors[i].SetLen(udp.MaxDatagram)
		h := &in.headers[i]
		h.Iov = &in.vectors[i]
		h.SetIovlen(1)
		h.Name = (*byte)(unsafe.Pointer(&in.senders[i]))
		h.Control = &in.control[i][0]
	}
	return in
}

// Receive reads as many datagrams as there are, up to most.
func (in *ReceiveBatch) Receive(fd, most int) (n int, errno unix.Errno) {
	for i := range most {
		in.headers[i].Namelen = uint32(unsafe.Sizeof(in.senders[i]))
		in.headers[i].SetControllen(len(in.control[i]))
	}
	return recvmmsg(fd, in.headers[:most])
}

// Datagram returns the nth of a batch, with its sender and what the kernel says of it.
func (in *ReceiveBatch) Datagram(n int) (client netip.AddrPort, local sockopt.LocalAddr, datagram []byte) {
	h := &in.headers[n]
	return addrPort(&in.senders[n]), sockopt.ParseReceipt(in.control[n][:h.Controllen]), in.data[n][:h.length]
}

// A SendBatch is room for a batch of replies. The zero value is an empty one; it is large.
type SendBatch struct {
	n       int
	replies [ReplyBatch]reply
	headers [ReplyBatch]mmsghdr
	vectors [ReplyBatch]unix.Iovec
	names   [ReplyBatch]unix.RawSockaddrInet6
	data    [ReplyBatch]udp.DatagramBuffer
}

// A Sender is whom a reply is sent for.
type Sender interface {
	// Delivered is told what came of sending a reply of so many bytes.
	Delivered(length int, err error)
}

// A reply waits to be sent.
type reply struct {
	sender   Sender
	fd       int
	length   int
	nameSize uintptr
	control  []byte
}

// Room returns where one more reply may be read into. If the batch is full, it is sent first.
func (out *SendBatch) Room() *udp.DatagramBuffer {
	if out.n == ReplyBatch {
		out.Send()
	}
	return &out.data[out.n]
}

// Add has what was read into the room sent with the rest of the batch: from a socket, with control messages, to an address of its
// family.
func (out *SendBatch) Add(sender Sender, fd int, to netip.AddrPort, control []byte, length int) {
	_, name, size := sockaddr(to)
	out.names[out.n] = name
	out.replies[out.n] = reply{sender, fd, length, size, control}
	out.n++
}

// Owes reports whether a reply of a sender is still to be sent.
func (out *SendBatch) Owes(sender Sender) bool {
	return out != nil && slices.ContainsFunc(out.replies[:out.n], func(r reply) bool { return r.sender == sender })
}

// Send sends what was collected, in one system call for each run of replies that leave from one socket.
func (out *SendBatch) Send() {
	if out == nil || out.n == 0 {
		return
	}
	for i := range out.n {
		r := &out.replies[i]
		out.vectors[i].Base = &out.data[i][0]
		out.vectors[i].SetLen(r.length)
		h := &out.headers[i]
		h.Iov = &out.vectors[i]
		h.SetIovlen(1)
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&out.names[i])), uint32(r.nameSize)
		h.Control = nil
		if len(r.control) > 0 {
			h.Control = &r.control[0]
		}
		h.SetControllen(len(r.control))
	}
	for from := 0; from < out.n; {
		to := from + 1
		for to < out.n && out.replies[to].fd == out.replies[from].fd {
			to++
		}
		sent, errno := sendmmsg(out.replies[from].fd, out.headers[from:to])
		if errno != 0 {
			sent = 0
		}
		for _, r := range out.replies[from : from+sent] {
			r.sender.Delivered(r.length, nil)
		}
		if from += sent; sent == 0 {
			if errno != unix.ECONNREFUSED { // that was the answer to an earlier one
				r := out.replies[from]
				r.sender.Delivered(r.length, errno)
				from++
			}
		}
	}
	clear(out.replies[:out.n])
	out.n = 0
}
