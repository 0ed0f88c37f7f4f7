package udp

import "sync"

// ReceiveBuffer is what we ask the kernel to hold for a port while the read loop is not
// running. Its usual 208 KiB are gone after two datagrams of full length. The kernel grants as much
// as net.core.rmem_max allows. (Of what 100 known clients sent while 100,000 forged senders did, all
// was answered with 4 MiB, 94 % with 1 MiB, 86 % with 208 KiB; see UDPQueue.)
const ReceiveBuffer = 4 << 20

// ReplyBuffer is what we ask the kernel to hold for a session while its replies are not read. It takes memory only while replies wait:
// at most twice as much, and all sessions together no more than net.ipv4.udp_mem.
const ReplyBuffer = 1 << 20

// MaxDatagram is more than a UDP datagram can hold: its length has 16 bits and counts 8 bytes of
// header (RFC 768). One that fills a buffer of this size was cut. v0.4 cut all at 4096 bytes (D41).
const MaxDatagram = 1<<16 - 1

// A DatagramBuffer has room for any datagram.
type DatagramBuffer [MaxDatagram]byte

// DatagramBuffers lends buffers to those who receive a datagram now and then. Any goroutine may use it.
var DatagramBuffers = sync.Pool{New: func() any { return new(DatagramBuffer) }}
