package ring

import (
	"encoding/binary"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Buffers are a pool that the kernel takes buffers from for what it receives. Those that are never used take no memory.
type Buffers struct {
	size   int
	memory []byte
	queue  []byte // of buffers that the kernel may take: struct io_uring_buf_ring
	tail   uint16 // of the queue
	lent   int
}

// slotSize is the size of struct io_uring_buf: an address, a length, an id, and in the first one the tail of the queue.
const slotSize = 16

// NewBuffers makes the ring's pool of n buffers, a power of two. It is group 0, the one that receives name.
func (r *Ring) NewBuffers(n, size int) (*Buffers, error) {
	b := &Buffers{size: size}
	var err error
	if b.memory, err = unix.Mmap(-1, 0, n*size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	if b.queue, err = unix.Mmap(-1, 0, n*slotSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE); err != nil {
		b.Close()
		return nil, os.NewSyscallError("mmap", err)
	}
	registration := struct { // struct io_uring_buf_reg
		address uint64
		entries uint32
		_       [2]uint16
		_       [3]uint64
	}{address: uint64(uintptr(unsafe.Pointer(&b.queue[0]))), entries: uint32(n)}
	if _, err := r.register(registerBuffers, unsafe.Pointer(&registration), 1); err != nil {
		b.Close()
		return nil, err
	}
	b.lent = n
	for id := range n {
		b.GiveBack(uint16(id))
	}
	return b, nil
}

// Close frees the pool. Its ring has been closed before.
func (b *Buffers) Close() {
	if b.memory != nil {
		_ = unix.Munmap(b.memory)
	}
	if b.queue != nil {
		_ = unix.Munmap(b.queue)
	}
	*b = Buffers{}
}

// Take returns the buffer that a completion has, and what was received into it; has is false if it has none. The buffer is the caller's
// until GiveBack.
func (b *Buffers) Take(c *Completion) (id uint16, received []byte, has bool) {
	if c.flags&completionBuffer == 0 {
		return 0, nil, false
	}
	b.lent++
	id = uint16(c.flags >> bufferShift)
	from := int(id) * b.size
	return id, b.memory[from : from+max(0, int(c.Result))], true
}

// At returns the first n bytes of a buffer that was taken.
func (b *Buffers) At(id uint16, n int) []byte { return b.memory[int(id)*b.size:][:n] }

// GiveBack lets the kernel take a buffer again.
func (b *Buffers) GiveBack(id uint16) {
	slots := len(b.queue) / slotSize
	slot := b.queue[int(b.tail)%slots*slotSize:][:slotSize]
	binary.NativeEndian.PutUint64(slot, uint64(uintptr(unsafe.Pointer(&b.memory[int(id)*b.size]))))
	binary.NativeEndian.PutUint32(slot[8:], uint32(b.size))
	binary.NativeEndian.PutUint16(slot[12:], id)
	b.tail++
	b.lent--
	// The kernel reads the tail, which stands behind the id of the first slot. There are no atomic stores of 16 bits.
	var last [4]byte
	copy(last[:2], b.queue[12:14])
	binary.NativeEndian.PutUint16(last[2:], b.tail)
	atomic.StoreUint32((*uint32)(unsafe.Pointer(&b.queue[12])), binary.NativeEndian.Uint32(last[:]))
}

// Lent is how many buffers are with the caller.
func (b *Buffers) Lent() int { return b.lent }
