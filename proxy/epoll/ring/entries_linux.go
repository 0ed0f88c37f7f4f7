package ring

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// What may be asked of a ring. Each is an entry, which is submitted with the others.

// Receive has a part of a stream be read from a socket into a buffer. If it is likely that there is nothing yet, late saves a look.
func (r *Ring) Receive(fd int, b *Buffers, late bool, data uint64) {
	e := entry{op: opReceive, flags: bufferSelect, fd: int32(fd), data: data}
	if late {
		e.priority = pollFirst
	}
	r.add(e)
}

// Send has bytes be written to a socket, or as many of them as it takes at once. It completes when it is submitted. The bytes must stay
// in place until then: on a heap, which the runtime does not move, or in a [Buffers].
func (r *Ring) Send(fd int, b []byte, data uint64) {
	r.add(entry{op: opSend, fd: int32(fd), data: data,
		address: uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))), length: uint32(len(b)),
		opFlags: unix.MSG_NOSIGNAL | unix.MSG_DONTWAIT})
	r.sends++
}

// Poll completes once a descriptor can be read from.
func (r *Ring) Poll(fd int, data uint64) {
	r.add(entry{op: opPollAdd, fd: int32(fd), opFlags: unix.POLLIN, data: data})
}

// Cancel ends a receive, which completes with ECANCELED unless it has received something by then. It does not complete itself, unless it fails.
func (r *Ring) Cancel(receive, data uint64) {
	r.add(entry{op: opAsyncCancel, flags: skipSuccess, fd: -1, address: receive, data: data})
}

// CloseDescriptor closes a descriptor, which is ours until then. It does not complete, unless it fails.
func (r *Ring) CloseDescriptor(fd int, data uint64) {
	r.add(entry{op: opClose, flags: skipSuccess, fd: int32(fd), data: data})
}

// CancelAll cancels all that is under way. What has been received by then completes as usual, the rest with ECANCELED.
func (r *Ring) CancelAll(data uint64) {
	r.add(entry{op: opAsyncCancel, fd: -1, opFlags: cancelAll | cancelAny, data: data})
}

// Try makes so many rings at once, each with its buffers, as loops would, and returns why that fails. All are closed then, though the kernel may
// count their memory for a moment longer.
func Try(rings, size int, buffers func(*Ring) (*Buffers, error)) error {
	for range rings {
		r, err := New(size)
		if err != nil {
			return err
		}
		defer r.Close()
		b, err := buffers(r)
		if err != nil {
			return err
		}
		defer b.Close()
	}
	return nil
}
