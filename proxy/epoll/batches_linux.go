package epoll

import (
	"net/netip"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"

	"kubeproxy/proxy/sockopt"
	"kubeproxy/proxy/udp"
)

// How many datagrams are read from a port at once, and how many replies are collected before they are
// sent; and how many sessions may begin in one batch before batches become as small as that.
const (
	datagramBatch = 64
	replyBatch    = 64
	fewSessions   = 8
)

// A receiveBatch is room for a batch of datagrams, their senders, and which of our addresses they were
// sent to.
type receiveBatch struct {
	headers [datagramBatch]mmsghdr
	vectors [datagramBatch]unix.Iovec
	senders [datagramBatch]unix.RawSockaddrAny
	control [datagramBatch][128]byte // no less than ReceiptSpace
	data    [datagramBatch]udp.DatagramBuffer
}

// mmsghdr is struct mmsghdr of recvmmsg(2).
type mmsghdr struct {
	unix.Msghdr
	length uint32
}

// newReceiveBatch makes one. What of it no datagram has touched takes no memory.
func newReceiveBatch() *receiveBatch {
	in := new(receiveBatch)
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

// receive reads as many datagrams as there are, up to most.
func (in *receiveBatch) receive(fd, most int) (n int, errno unix.Errno) {
	for i := range most {
		in.headers[i].Namelen = uint32(unsafe.Sizeof(in.senders[i]))
		in.headers[i].SetControllen(len(in.control[i]))
	}
	return recvmmsg(fd, in.headers[:most])
}

// datagram returns the nth of a batch, with its sender and what the kernel says of it.
func (in *receiveBatch) datagram(n int) (client netip.AddrPort, said sockopt.Receipt, datagram []byte) {
	h := &in.headers[n]
	return addrPort(&in.senders[n]), sockopt.ParseReceipt(in.control[n][:h.Controllen]), in.data[n][:h.length]
}

// A sendBatch is room for a batch of replies.
type sendBatch struct {
	n       int
	replies [replyBatch]reply
	headers [replyBatch]mmsghdr
	vectors [replyBatch]unix.Iovec
	names   [replyBatch]unix.RawSockaddrInet6
	data    [replyBatch]udp.DatagramBuffer
}

// A reply waits to be sent to the client of a session.
type reply struct {
	session *session
	length  int
}

// room returns where one more reply may be read into. If the batch is full, it is sent first.
func (out *sendBatch) room() *udp.DatagramBuffer {
	if out.n == replyBatch {
		out.send()
	}
	return &out.data[out.n]
}

// add has what was read into the room sent to the client of f, with the rest of the batch.
func (out *sendBatch) add(f *session, length int) {
	out.replies[out.n] = reply{f, length}
	out.n++
}

// owes reports whether a reply to the client of f is still to be sent.
func (out *sendBatch) owes(f *session) bool {
	return out != nil && slices.ContainsFunc(out.replies[:out.n], func(r reply) bool { return r.session == f })
}

// send sends what was collected, in one system call for each run of replies that leave from one port.
func (out *sendBatch) send() {
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
		var size uintptr
		out.names[i], size = r.session.port.name(r.session.Key.Client)
		h.Name, h.Namelen = (*byte)(unsafe.Pointer(&out.names[i])), uint32(size)
		h.Control = nil
		if len(r.session.Control) > 0 {
			h.Control = &r.session.Control[0]
		}
		h.SetControllen(len(r.session.Control))
	}
	for from := 0; from < out.n; {
		to := from + 1
		for to < out.n && out.replies[to].session.port == out.replies[from].session.port {
			to++
		}
		sent, errno := sendmmsg(out.replies[from].session.port.fd, out.headers[from:to])
		if errno != 0 {
			sent = 0
		}
		for _, r := range out.replies[from : from+sent] {
			r.session.Delivered(r.length, nil)
		}
		if from += sent; sent == 0 {
			if errno != unix.ECONNREFUSED { // that was the answer to an earlier one
				r := out.replies[from]
				r.session.Delivered(r.length, errno)
				from++
			}
		}
	}
	clear(out.replies[:out.n])
	out.n = 0
}

// name writes the address of a client as the socket of the port wants it.
func (p *epollUDP) name(client netip.AddrPort) (unix.RawSockaddrInet6, uintptr) {
	if p.dual && client.Addr().Is4() {
		client = netip.AddrPortFrom(netip.AddrFrom16(client.Addr().As16()), client.Port())
	}
	_, name, size := sockaddr(client)
	return name, size
}
